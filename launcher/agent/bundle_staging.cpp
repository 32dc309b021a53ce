// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/bundle_staging.h"

#include <algorithm>
#include <cerrno>

#include "launcher/agent/announcer.h"
#include "launcher/agent/cache_clean.h"
#include "launcher/failures/failure_code.h"
#include "launcher/protocol/part_list.h"

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
void BundleStaging::mark(Place& place, const std::string& bundle) {
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
void BundleStaging::note_use_of(const Place& place) const {
  if (!place.mark || source_.cleans_cache) return;
  const bool own = &place == &places_.front();
  note_use(place.cache->directory(), own ? source_.agent_sha256 : "", place.marked_bundle);
}

// A job of many days began long ago.
void BundleStaging::end_use() {
  arrival_.reset();
  for (const Place& place : places_) note_use_of(place);
}

void BundleStaging::release_marks() {
  for (Place& place : places_) place.mark.reset();
}

void BundleStaging::renew_marks() const {
  for (const Place& place : places_) {
    if (place.mark) place.mark->renew();
  }
}

// Looks in all places, since an earlier job may have moved on to another one.
bool BundleStaging::find_bundle() {
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

// In the first place that has any. Links keep what they lead to, whatever becomes of the other
// bundle.
void BundleStaging::use_parts_of_others() {
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
  Place& place = places_[place_];
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

// In the place that is next: with the parts that are whole, and with what has come of this one.
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

}  // namespace hora::launcher
