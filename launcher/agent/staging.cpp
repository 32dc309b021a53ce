// SPDX-License-Identifier: Apache-2.0
// Everything that is delivered to a host before its ranks start: the bundle, into a cache, and
// shipped files, into the job's directory. One delivery at a time. When a cache refuses the bundle
// (full, read-only, noexec), the next place gets it.
#include "launcher/agent/staging.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/agent/cache_places.h"
#include "launcher/failures/failure_code.h"

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
}

bool Staging::have_bundle(const std::string& hash) {
  for (Place& place : places_) {
    const bool own = &place == &places_.front();
    auto cache = BundleCache::open(place.path);
    if (!cache) continue;
    place.cache.emplace(std::move(*cache));
    // A cleaner looks for marks again after it has removed the entry's name, so set the mark first
    // and look for the entry afterwards.
    if (own && source_.cleans_cache) {
      mark(place, std::string(kCleaner));
    } else if (own || place.cache->find(hash)) {
      mark(place, hash);
    }
    if (bundle_root_.empty()) bundle_root_ = place.cache->find(hash).value_or("");
    if (hash.empty() || !bundle_root_.empty()) return true;
    // The bundle is not here; the mark would only block a cleaner.
    if (!own) place.mark.reset();
  }
  return hash.empty() || !bundle_root_.empty();
}

Status Staging::begin_arrival() {
  if (places_.empty()) {
    return make_error(ErrorCode::kUsage, "the agent was started without a cache directory");
  }
  Place& place = places_[place_];
  // A cleaner may remove the directory while it is still empty, so try again when it vanishes.
  Result<std::unique_ptr<BundleCache::Arrival>> arrival(nullptr);
  for (int attempt = 0; attempt < 3; ++attempt) {
    auto cache = BundleCache::create(place.path);
    if (!cache) return std::move(cache).error();
    place.cache.emplace(std::move(*cache));
    mark(place, header_.hash);
    arrival = place.cache->receive(header_, announcer(share_.unfinished_entry));
    if (arrival || arrival.error().code != ErrorCode::kNotFound) break;
  }
  if (!arrival) return std::move(arrival).error();
  arrival_ = std::move(*arrival);
  // Begin again with all bytes so far.
  return arrival_->write(received_);
}

// Moves to the next place after a failure. All bytes received so far are kept, because a full disk
// shows only when they no longer fit.
Status Staging::settle(Status tried) {
  while (!tried) {
    arrival_.reset();
    const Error& error = tried.error();
    // A bad stream is bad everywhere; only the place's own failures are worth another one.
    if (error.code == ErrorCode::kUsage || place_ + 1 >= places_.size()) {
      Error all = error;
      all.message.insert(0, refusals_);
      return all;
    }
    refusals_ += error.message + "; ";
    all_full_ = all_full_ && is_full(error);
    if (place_ > 0) places_[place_].mark.reset();
    ++place_;
    tried = begin_arrival();
  }
  return tried;
}

std::optional<Failure> Staging::on_bundle(std::string_view payload) {
  if (in_progress()) return protocol_failure("a bundle inside another delivery");
  auto header = decode_bundle_header(payload);
  if (!header) return protocol_failure(header.error().message);
  header_ = std::move(*header);
  place_ = 0;
  all_full_ = true;
  received_.clear();
  refusals_.clear();
  if (const Status begun = settle(begin_arrival()); !begun) return cache_failure(begun.error());
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
  entry.sha256 = file->sha256;
  auto unpacker = FileUnpacker::create(std::move(directory), *path, {std::move(entry)});
  if (!unpacker) return ship_failure(unpacker.error());
  shipped_ = std::move(*unpacker);
  return std::nullopt;
}

// Data frames carry no name: they belong to the delivery under way.
std::optional<Failure> Staging::on_data(std::string_view bytes) {
  if (arrival_) {
    received_ += bytes;
    const Status written = settle(arrival_->write(bytes));
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

std::optional<Failure> Staging::on_data_end() {
  if (arrival_) {
    // The last check may fail as well (close() on a full disk), and then the next place gets it
    // all.
    auto path = arrival_->finish();
    while (!path) {
      const Status begun = settle(path.error());
      if (!begun) return cache_failure(begun.error());
      path = arrival_->finish();
    }
    bundle_root_ = *path;
    arrival_.reset();
    // Frees the memory; clear() would keep it.
    received_ = std::string();
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
  for (Place& place : places_) place.mark.reset();
  // Nothing but our mark may be left after cleaning.
  if (source_.cleans_cache) ::rmdir(source_.cache_directory.c_str());
}

}  // namespace hora::launcher
