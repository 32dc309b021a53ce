// SPDX-License-Identifier: Apache-2.0
// Everything that is delivered to a host before its ranks start: the parts of the bundle, into a
// cache, and shipped files, into the job's directory. One delivery at a time. When a cache refuses
// the bundle (full, read-only, noexec), the next place gets it.
#include "launcher/agent/staging.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "launcher/agent/cache_clean.h"
#include "launcher/agent/cache_places.h"
#include "launcher/failures/failure_code.h"
#include "launcher/protocol/part_list.h"

namespace hora::launcher {

namespace {

// Tells the shim what to remove if a kill prevents us from doing it.
template <std::size_t N>
std::function<Status(const std::string&)> announcer(char (&text)[N]) {
  return [&text](const std::string& path) -> Status {
    if (!set_shared_text(text, path)) {
      return make_error(ErrorCode::kFailed, "the path " + path.substr(0, 80) + "... is too long");
    }
    return Ok{};
  };
}

// The user waits for the end of his job; what is left is for the next one to remove.
constexpr Milliseconds kCleaningTime{1'000};

bool is_full(const Error& error) { return error.errnum == ENOSPC || error.errnum == EDQUOT; }

}  // namespace

Staging::Staging(Source source, ShimState& share)
    : source_(std::move(source)), bundle_root_(source_.local_bundle), share_(share) {
  // The first place holds the agent itself; its mark protects both. All others share one slot.
  if (source_.cache_directory.empty()) return;
  for (std::string& path : cache_places_from(source_.cache_directory)) {
    places_.emplace_back(std::move(path), share_.use_marks[places_.empty() ? 0 : 1]);
  }
}

// "Disk full" is the verdict only if every place was full.
Failure Staging::cache_failure(const Error& error) const {
  std::string advice = failure::open_files_advice(error.errnum, "there");
  if (advice.empty()) {
    advice = "free some space there, or name another directory with XDG_CACHE_HOME or TMPDIR";
  }
  const bool full = all_full_ && is_full(error);
  return {std::string(full ? failure::kDiskFull : failure::kCache), error.message,
          std::move(advice)};
}

Failure Staging::ship_failure(const Error& error) const {
  return {std::string(failure::kShip), error.message, ""};
}

Failure Staging::protocol_failure(const std::string& what) const {
  return {std::string(failure::kProtocol), "its agent received " + what, ""};
}

// If no mark can be made (the file system is full or read-only), the job runs all the same; a
// cleaner on another host then does not know of it.
void Staging::mark(Place& place, const std::string& bundle) {
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

// Whoever cleans is no user: the age of what he looks at must stay.
void Staging::note_use_of(const Place& place) const {
  if (!place.mark || source_.cleans_cache) return;
  const bool own = &place == &places_.front();
  note_use(place.cache->directory(), own ? source_.agent_sha256 : "", place.marked_bundle);
}

// To be called while our marks stand, so that what this job has used stays for the next one. What
// cannot be removed is no failure of the job.
void Staging::keep_limits() const {
  if (!source_.limits.max_age && !source_.limits.max_bytes) return;
  const CleanRequest request{source_.limits, false, true, Clock::now() + kCleaningTime};
  for (const Place& place : places_) (void)clean_cache(place.path, request);
}

// Looks in all places, since an earlier job may have moved on to another one.
bool Staging::find_bundle() {
  for (Place& place : places_) {
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
    if (bundle_root_.empty()) bundle_root_ = place.cache->find(bundle_).value_or("");
    if (bundle_.empty() || !bundle_root_.empty()) return true;
    // The bundle is not here; the mark would only block a cleaner.
    if (!own) place.mark.reset();
  }
  return bundle_.empty() || !bundle_root_.empty();
}

std::vector<std::string> Staging::find_missing(std::vector<std::string> parts) {
  parts_ = std::move(parts);
  bundle_ = parts_.empty() ? "" : bundle_name(parts_);
  if (find_bundle()) return {};
  use_parts_of_others();
  std::vector<std::string> missing;
  for (const std::string& part : parts_) {
    if (bundle_root_.empty() && (!arrival_ || !arrival_->has(part))) missing.push_back(part);
  }
  return missing;
}

// In the first place that has any. Links keep what they lead to, whatever becomes of the other
// bundle.
void Staging::use_parts_of_others() {
  for (place_ = 0; place_ < places_.size(); ++place_) {
    Place& place = places_[place_];
    if (!place.cache) continue;
    const auto known = place.cache->parts();
    const auto is_known = [&known](const std::string& part) { return known.count(part) > 0; };
    if (std::none_of(parts_.begin(), parts_.end(), is_known)) continue;
    auto arrival = open_arrival();
    if (!arrival) continue;
    arrival_ = std::move(*arrival);
    for (const std::string& part : parts_) {
      if (!is_known(part) || arrival_->adopt(known.at(part))) continue;
      // Somebody cleans, or nothing more can be created here: the launcher sends them all.
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
      if (path) bundle_root_ = *path;
    }
    return;
  }
  place_ = 0;
}

// In this place.
Result<std::unique_ptr<BundleCache::Arrival>> Staging::open_arrival() {
  if (places_.empty()) {
    return make_error(ErrorCode::kUsage, "the agent was started without a cache directory");
  }
  Place& place = places_[place_];
  // Two places are unfinished at one time when the bundle moves on.
  auto& announced = share_.unfinished_entries[place_ % 2];
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

// In the place that is next: with the parts that are whole, and with what has come of this one.
Status Staging::begin_again() {
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
Status Staging::settle(Status tried) {
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

std::optional<Failure> Staging::on_part(std::string_view payload) {
  if (in_progress()) return protocol_failure("a part inside another delivery");
  auto part = decode_bundle_part(payload);
  if (!part) return protocol_failure(part.error().message);
  if (std::find(parts_.begin(), parts_.end(), part->hash) == parts_.end() ||
      (arrival_ && arrival_->has(part->hash))) {
    return protocol_failure("a part that it has not asked for");
  }
  part_ = std::move(*part);
  received_.clear();
  delivering_ = true;
  const Status begun = settle(arrival_ ? arrival_->begin_part(part_) : begin_again());
  if (!begun) return cache_failure(begun.error());
  return std::nullopt;
}

// A shipped file goes through the same checks as a bundle's file.
std::optional<Failure> Staging::on_ship_file(std::string_view payload) {
  if (in_progress()) return protocol_failure("a file inside another delivery");
  const auto file = decode_ship_file(payload);
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

// Data frames carry no name: they belong to the delivery under way.
std::optional<Failure> Staging::on_data(std::string bytes) {
  if (delivering_) {
    received_.push_back(std::move(bytes));
    const Status written = settle(arrival_->write(received_.back()));
    if (!written) return cache_failure(written.error());
  } else if (shipped_) {
    if (const Status written = shipped_->write(bytes); !written) {
      return ship_failure(written.error());
    }
  } else {
    return protocol_failure("data without a delivery");
  }
  return std::nullopt;
}

// The last check may fail as well (close() on a full disk), and then the next place gets it all.
Status Staging::complete_part() {
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
  bundle_root_ = *path;
  arrival_.reset();
  return Ok{};
}

std::optional<Failure> Staging::on_data_end() {
  if (delivering_) {
    if (const Status completed = complete_part(); !completed) {
      return cache_failure(completed.error());
    }
  } else if (shipped_) {
    const Status finished = shipped_->finish();
    shipped_.reset();
    if (!finished) return ship_failure(finished.error());
  } else {
    return protocol_failure("the end of a delivery that had not begun");
  }
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
  for (const Place& place : places_) {
    if (place.mark) place.mark->renew();
  }
}

// Order matters: what uses a directory goes before the directory.
void Staging::clean_up() {
  arrival_.reset();
  shipped_.reset();
  directory_.reset();
  // A job of many days began long ago.
  for (const Place& place : places_) note_use_of(place);
  keep_limits();
  for (Place& place : places_) place.mark.reset();
  // Nothing but our mark may be left after cleaning.
  if (source_.cleans_cache) ::rmdir(source_.cache_directory.c_str());
}

}  // namespace hora::launcher
