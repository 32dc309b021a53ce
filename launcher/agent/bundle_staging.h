// SPDX-License-Identifier: Apache-2.0
// One bundle that a job needs on this host, from the question whether it is here to the last of its
// parts. When a cache refuses it (full, read-only, noexec), the next place gets it. Owns what it
// has made on disk. Calls take as long as the file system does, on the agent's thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/bundle_cache.h"
#include "launcher/agent/cache_use.h"
#include "launcher/agent/shim.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher {

class BundleStaging {
 public:
  struct Source {
    // Where bundles may be, the first choice first; none: nothing is kept here.
    std::vector<std::string> cache_directories;
    std::string agent_sha256;   // of this agent, when it lies in the first of them
    bool cleans_cache = false;  // its rank does, see cache_use.h
  };
  BundleStaging(Source source, ShimState::BundleSlots& slots);

  // Looks for the bundle that has these parts (hashes), and marks what is used. If it is not here,
  // begins to make it of those that are, and returns the others. A cache that cannot be used is no
  // failure before it is needed.
  std::vector<std::string> find_missing(std::vector<std::string> parts);
  // Where the bundle is; empty: not here.
  const std::string& root() const { return root_; }

  // A part, one at a time: a header, data, an end.
  bool lacks(const std::string& part_hash) const;
  std::optional<Failure> begin_part(BundlePart part);
  std::optional<Failure> write(std::string bytes);
  std::optional<Failure> end_part();

  // To be called each hour.
  void renew_marks() const;

  // At the end of the job: removes what is unfinished, and notes the last use of the rest, which
  // its marks protect for as long as they stand.
  void end_use();
  void release_marks();

 private:
  // A directory of the cache. What is used of it is marked as long as this is so.
  struct Place {
    Place(std::string directory, char (&text)[PATH_MAX])
        : path(std::move(directory)), announced_mark(text) {}
    std::string path;
    char (&announced_mark)[PATH_MAX];
    std::optional<BundleCache> cache;
    std::string marked_bundle;
    std::optional<UseMark> mark;
  };

  Failure failure_of(const Error& error) const;
  void mark(Place& place, const std::string& bundle);
  void note_use_of(const Place& place) const;
  bool find_bundle();
  void use_parts_of_others();
  Result<std::unique_ptr<BundleCache::Arrival>> open_arrival();
  Status begin_again();
  Status settle(Status tried);  // goes on in the next place when this one was of no use
  Status complete_part();

  Source source_;
  ShimState::BundleSlots& slots_;
  std::string root_;
  std::vector<Place> places_;  // the agent's own, and those to turn to when a bundle does not fit
  std::vector<std::string> parts_;  // of the bundle
  std::string bundle_;              // its name; empty: none is needed
  // The bundle that is being made, where, and why not elsewhere.
  std::unique_ptr<BundleCache::Arrival> arrival_;
  std::size_t place_ = 0;
  std::string refusals_;
  bool all_full_ = true;
  // The part that is arriving, and what has come of it: the one copy, as it came.
  bool delivering_ = false;
  BundlePart part_;
  std::vector<std::string> received_;
};

}  // namespace hora::launcher
