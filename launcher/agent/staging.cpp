// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/staging.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "launcher/agent/order_check.h"
#include "launcher/failures/failure_code.h"
#include "launcher/protocol/delivery.h"
#include "launcher/store/cache_clean.h"
#include "launcher/store/directories.h"
#include "launcher/store/file_unpacker.h"

namespace hora::launcher {

namespace {

bool is_full(const Error& error) { return error.errnum == ENOSPC || error.errnum == EDQUOT; }

}  // namespace

BundleStaging::BundleStaging(Source source, ShimState::BundleSlots& slots)
    : source_(std::move(source)), slots_(slots) {
  // Where this agent lies, its mark protects both. All others share one slot.
  for (const std::string& path : source_.cache_directories) {
    places_.emplace_back(path, slots_.use_marks[places_.empty() ? 0 : 1]);
  }
}

// "Disk full" is the verdict only if every place was full.
Failure BundleStaging::failure_of(const Error& error) const {
  std::string advice = failure::open_files_advice(error.errnum, "there");
  if (advice.empty()) {
    advice = "free some space there, or name another directory with XDG_CACHE_HOME or TMPDIR";
  }
  const bool full = all_full_ && is_full(error);
  return {std::string(full ? failure::kDiskFull : failure::kCache), error.message,
          std::move(advice)};
}

// If no mark can be made (the file system is full or read-only), the job runs all the same; a
// cleaner on another host then does not know of it.
void BundleStaging::mark(MarkedCache& place, const std::string& bundle) {
  if (place.mark && place.marked_bundle == bundle) return;
  place.mark.reset();
  const std::string& agent = &place == &places_.front() ? source_.agent_sha256 : std::string();
  if (agent.empty() && bundle.empty()) return;
  auto made =
      UseMark::make(place.cache->directory(), agent, bundle, announcer(place.announced_mark));
  if (!made) return;
  place.mark.emplace(std::move(*made));
  place.marked_bundle = bundle;
  note_use_of(place);
}

// A cleaner is not a user: the age of the entries it looks at must stay.
void BundleStaging::note_use_of(const MarkedCache& place) const {
  if (!place.mark || source_.cleans_cache) return;
  const bool own = &place == &places_.front();
  note_use(place.cache->directory(), own ? source_.agent_sha256 : "", place.marked_bundle);
}

// A job of many days began long ago.
void BundleStaging::end_use() {
  arrival_.reset();
  for (const MarkedCache& place : places_) note_use_of(place);
}

void BundleStaging::release_marks() {
  for (MarkedCache& place : places_) place.mark.reset();
}

void BundleStaging::renew_marks() const {
  for (const MarkedCache& place : places_) {
    if (place.mark) place.mark->renew();
  }
}

// Looks in all places, since an earlier job may have moved on to another one.
bool BundleStaging::find_bundle() {
  for (MarkedCache& place : places_) {
    const bool own = &place == &places_.front();
    auto cache = BundleCache::open(place.path);
    if (!cache) continue;
    place.cache.emplace(std::move(*cache));
    // A cleaner looks for marks again after it has removed the entry's name, so set the mark first
    // and look for the entry afterwards.
    if (own && source_.cleans_cache) {
      mark(place, std::string(kCleaner));
    } else if (own || place.cache->find(bundle_)) {
      mark(place, bundle_);
    }
    if (root_.empty()) root_ = place.cache->find(bundle_).value_or("");
    if (bundle_.empty() || !root_.empty()) return true;
    // The bundle is not here; the mark would only block a cleaner.
    if (!own) place.mark.reset();
  }
  return bundle_.empty() || !root_.empty();
}

std::vector<std::string> BundleStaging::find_missing(std::vector<std::string> parts) {
  parts_ = std::move(parts);
  bundle_ = parts_.empty() ? "" : bundle_name(parts_);
  if (find_bundle()) return {};
  use_parts_of_others();
  std::vector<std::string> missing;
  for (const std::string& part : parts_) {
    if (root_.empty() && (!arrival_ || !arrival_->has(part))) missing.push_back(part);
  }
  return missing;
}

// In the first directory that has any. Links keep their contents, even if the other bundle is
// removed.
void BundleStaging::use_parts_of_others() {
  for (place_ = 0; place_ < places_.size(); ++place_) {
    MarkedCache& place = places_[place_];
    if (!place.cache) continue;
    const auto known = place.cache->parts();
    const auto is_known = [&known](const std::string& part) { return known.count(part) > 0; };
    if (std::none_of(parts_.begin(), parts_.end(), is_known)) continue;
    auto arrival = open_arrival();
    if (!arrival) continue;
    arrival_ = std::move(*arrival);
    for (const std::string& part : parts_) {
      if (!is_known(part) || arrival_->adopt(known.at(part))) continue;
      // A cleaner is active, or nothing more can be created here: the launcher sends all parts.
      arrival_.reset();
      break;
    }
    if (!arrival_) {
      if (place_ > 0) place.mark.reset();
      continue;
    }
    if (std::all_of(parts_.begin(), parts_.end(), is_known)) {
      auto path = arrival_->finish();
      arrival_.reset();
      if (path) root_ = *path;
    }
    return;
  }
  place_ = 0;
}

// In this place.
Result<std::unique_ptr<BundleCache::Arrival>> BundleStaging::open_arrival() {
  if (places_.empty()) {
    return make_error(ErrorCode::kUsage, "the agent was started without a cache directory");
  }
  MarkedCache& place = places_[place_];
  // Two places are unfinished at one time when the bundle moves on.
  auto& announced = slots_.unfinished_entries[place_ % 2];
  // A cleaner may remove the directory while it is still empty, so try again when it vanishes.
  Result<std::unique_ptr<BundleCache::Arrival>> arrival(nullptr);
  for (int attempt = 0; attempt < 3; ++attempt) {
    auto cache = BundleCache::create(place.path);
    if (!cache) return std::move(cache).error();
    place.cache.emplace(std::move(*cache));
    mark(place, bundle_);
    arrival = place.cache->begin(announcer(announced));
    if (arrival || arrival.error().code != ErrorCode::kNotFound) break;
  }
  return arrival;
}

// In the next directory: with the complete parts, and the received bytes of this one.
Status BundleStaging::begin_again() {
  auto arrival = open_arrival();
  if (!arrival) return std::move(arrival).error();
  if (arrival_) {
    for (const BundlePart& part : arrival_->parts()) {
      HORA_TRY((*arrival)->adopt(*arrival_, part));
    }
  }
  arrival_ = std::move(*arrival);
  if (!delivering_) return Ok{};
  HORA_TRY(arrival_->begin_part(part_));
  for (const std::string& bytes : received_) HORA_TRY(arrival_->write(bytes));
  return Ok{};
}

// Moves to the next place after a failure. The part that is arriving is kept as it came, because a
// full disk shows only when it no longer fits.
Status BundleStaging::settle(Status tried) {
  while (!tried) {
    const Error& error = tried.error();
    // A bad stream is bad everywhere; only the place's own failures are worth another one.
    if (error.code == ErrorCode::kUsage || place_ + 1 >= places_.size()) {
      Error all = error;
      all.message.insert(0, refusals_);
      arrival_.reset();
      return all;
    }
    refusals_ += error.message + "; ";
    all_full_ = all_full_ && is_full(error);
    const std::size_t left = place_++;
    tried = begin_again();
    if (left > 0) places_[left].mark.reset();
  }
  return tried;
}

bool BundleStaging::lacks(const std::string& part_hash) const {
  return root_.empty() && std::find(parts_.begin(), parts_.end(), part_hash) != parts_.end() &&
         (!arrival_ || !arrival_->has(part_hash));
}

std::optional<Failure> BundleStaging::begin_part(BundlePart part) {
  part_ = std::move(part);
  received_.clear();
  delivering_ = true;
  const Status begun = settle(arrival_ ? arrival_->begin_part(part_) : begin_again());
  if (!begun) return failure_of(begun.error());
  return std::nullopt;
}

std::optional<Failure> BundleStaging::write(std::string bytes) {
  received_.push_back(std::move(bytes));
  const Status written = settle(arrival_->write(received_.back()));
  if (!written) return failure_of(written.error());
  return std::nullopt;
}

std::optional<Failure> BundleStaging::end_part() {
  const Status completed = complete_part();
  if (!completed) return failure_of(completed.error());
  return std::nullopt;
}

// The last check may fail as well (close() on a full disk), and then the next place gets it all.
Status BundleStaging::complete_part() {
  while (delivering_) {
    if (Status ended = arrival_->end_part(); ended) {
      delivering_ = false;
      received_.clear();
      received_.shrink_to_fit();
    } else {
      HORA_TRY(settle(std::move(ended)));
    }
  }
  if (arrival_->parts().size() < parts_.size()) return Ok{};
  auto path = arrival_->finish();
  while (!path) {
    HORA_TRY(settle(Error(path.error())));
    path = arrival_->finish();
  }
  root_ = *path;
  arrival_.reset();
  return Ok{};
}

// Everything that is delivered to a host before its ranks start. Frames of data carry no name: they
// belong to the delivery that is under way, of which there is one at a time.

namespace {

// The user waits for the end of his job; what is left is for the next one to remove.
constexpr Milliseconds kCleaningTime{1'000};

std::vector<std::string> directories_of(const std::string& first) {
  return first.empty() ? std::vector<std::string>() : cache_places_from(first);
}

}  // namespace

Staging::Staging(Source source, ShimState& share)
    : source_(std::move(source)),
      share_(share),
      cache_directories_(directories_of(source_.cache_directory)),
      runtime_({cache_directories_, source_.agent_sha256, source_.cleans_cache}, share.runtime) {}

Failure Staging::ship_failure(const Error& error) const {
  return {std::string(failure::kShip), error.message, ""};
}

std::vector<std::string> Staging::find_missing(std::vector<std::string> parts) {
  if (!source_.local_bundle.empty()) parts.clear();
  return runtime_.find_missing(std::move(parts));
}

const std::string& Staging::bundle_root() const {
  return source_.local_bundle.empty() ? runtime_.root() : source_.local_bundle;
}

// An agent that lies in no cache, on the launcher's own machine, keeps folders where those of other
// machines do.
std::vector<std::string> Staging::find_missing_of_tree(const OfferTree& offer) {
  if (cache_directories_.empty()) cache_directories_ = cache_places();
  const BundleStaging::Source source{cache_directories_, {}, false};
  std::vector<std::string> missing;
  if (!offer.parts.empty()) {
    tree_ = std::make_unique<BundleStaging>(source, share_.tree);
    missing = tree_->find_missing(offer.parts);
  }
  // An entry of its own: ranks use it where it lies, and get copies of the folders.
  if (!offer.environment.empty()) {
    interpreter_ = offer.interpreter;
    environment_ = std::make_unique<BundleStaging>(source, share_.environment);
    const auto more = environment_->find_missing(offer.environment);
    missing.insert(missing.end(), more.begin(), more.end());
  }
  return missing;
}

// A virtual environment runs the Python that its links lead to. They lead out of it, which is not
// allowed in what is sent; so they are made here, next to it.
std::optional<Failure> Staging::place_environment() const {
  const std::string root = environment_->root();
  if (root.empty()) return protocol_failure("an order before all parts of an environment");
  if (interpreter_.empty()) return std::nullopt;
  const std::string program = interpreter_.substr(interpreter_.rfind('/') + 1);
  for (const std::string& name : {std::string("python"), std::string("python3"), program}) {
    const std::string link = root + "/bin/" + name;
    if (::symlink(interpreter_.c_str(), link.c_str()) == 0 || errno == EEXIST) continue;
    return ship_failure(errno_error(errno, "creating " + link));
  }
  return std::nullopt;
}

// Copies, which belong to the job: what ranks write must not reach the cache. An environment is too
// large for that; its files are write-protected.
std::optional<Failure> Staging::place_tree() {
  if (environment_) {
    if (auto failure = place_environment()) return failure;
  }
  if (!tree_) return std::nullopt;
  if (tree_->root().empty()) return protocol_failure("an order before all parts of a folder");
  const auto path = job_directory();
  if (!path) return ship_failure(path.error());
  const Status copied = copy_bundle(tree_->root(), *path);
  if (!copied) return ship_failure(copied.error());
  return std::nullopt;
}

std::optional<Failure> Staging::on_part(std::string_view payload) {
  if (in_progress()) return protocol_failure("a part inside another delivery");
  auto part = decode<BundlePart>(payload);
  if (!part) return protocol_failure(part.error().message);
  for (BundleStaging* const each : {&runtime_, tree_.get(), environment_.get()}) {
    if (each == nullptr || !each->lacks(part->hash)) continue;
    receiving_ = each;
    return each->begin_part(std::move(*part));
  }
  return protocol_failure("a part that it has not asked for");
}

// A shipped file goes through the same checks as a bundle's file.
std::optional<Failure> Staging::on_ship_file(std::string_view payload) {
  if (in_progress()) return protocol_failure("a file inside another delivery");
  const auto file = decode<ShipFile>(payload);
  if (!file) return protocol_failure(file.error().message);
  const auto path = job_directory();
  if (!path) return ship_failure(path.error());
  os::Fd directory(::open(path->c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory.valid()) return ship_failure(errno_error(errno, "opening " + *path));
  BundleFile entry;
  entry.path = file->name;
  entry.size_bytes = file->size_bytes;
  entry.mode = file->mode;
  auto unpacker =
      FileUnpacker::create(std::move(directory), *path, {std::move(entry)}, file->packed_sha256);
  if (!unpacker) return ship_failure(unpacker.error());
  shipped_ = std::move(*unpacker);
  return std::nullopt;
}

std::optional<Failure> Staging::on_data(std::string bytes) {
  if (receiving_ != nullptr) return receiving_->write(std::move(bytes));
  if (!shipped_) return protocol_failure("data without a delivery");
  const Status written = shipped_->write(bytes);
  if (!written) return ship_failure(written.error());
  return std::nullopt;
}

std::optional<Failure> Staging::on_data_end() {
  if (receiving_ != nullptr) return std::exchange(receiving_, nullptr)->end_part();
  if (!shipped_) return protocol_failure("the end of a delivery that had not begun");
  const Status finished = shipped_->finish();
  shipped_.reset();
  if (!finished) return ship_failure(finished.error());
  return std::nullopt;
}

Result<std::string> Staging::job_directory() {
  if (!directory_) {
    auto created = JobDirectory::create(announcer(share_.job_directory));
    if (!created) return std::move(created).error();
    directory_.emplace(std::move(*created));
  }
  return directory_->path();
}

void Staging::renew_marks() const {
  runtime_.renew_marks();
  if (tree_) tree_->renew_marks();
  if (environment_) environment_->renew_marks();
}

// Call it while our marks exist, so that the parts this job has used stay for the next one. Failing
// to remove one is not a failure of the job.
void Staging::keep_limits() const {
  if (!source_.limits.max_age && !source_.limits.max_bytes) return;
  const CleanRequest request{source_.limits, false, true, Clock::now() + kCleaningTime};
  for (const std::string& path : cache_directories_) (void)clean_cache(path, request);
}

// Order matters: what uses a directory goes before the directory.
void Staging::clean_up() {
  runtime_.end_use();
  if (tree_) tree_->end_use();
  if (environment_) environment_->end_use();
  shipped_.reset();
  directory_.reset();
  keep_limits();
  runtime_.release_marks();
  if (tree_) tree_->release_marks();
  if (environment_) environment_->release_marks();
  // Nothing but our mark may be left after cleaning.
  if (source_.cleans_cache) ::rmdir(source_.cache_directory.c_str());
}

}  // namespace hora::launcher
