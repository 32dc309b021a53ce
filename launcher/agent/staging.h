// SPDX-License-Identifier: Apache-2.0
// What a launcher sends before the order: parts of the bundle, and files for the job. One at a
// time: a header, data, an end. Every method's answer is nothing, or the failure that ends the job.
// Owns what it has made on disk. Calls take as long as the file system does, on the agent's thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/agent/bundle_cache.h"
#include "launcher/agent/cache_use.h"
#include "launcher/agent/file_unpacker.h"
#include "launcher/agent/job_directory.h"
#include "launcher/agent/shim.h"
#include "launcher/plan/cache_limits.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher {

class Staging {
 public:
  struct Source {
    std::string cache_directory;  // where this agent lies; empty: there is no cache
    std::string agent_sha256;     // of this agent, when it is one of the cache
    std::string local_bundle;     // the bundle, used where it lies; empty: it is in the cache
    bool cleans_cache = false;    // its rank does, see cache_use.h
    CacheLimits limits = {};      // what the job leaves of the cache when it ends; none: all
  };
  Staging(Source source, ShimState& share);

  // Looks for the bundle that has these parts (hashes), and marks what is used. If it is not here,
  // begins to make it of those that are, and returns the others. A cache that cannot be used is no
  // failure before it is needed.
  std::vector<std::string> find_missing(std::vector<std::string> parts);
  // Where the bundle is; empty: not here.
  const std::string& bundle_root() const { return bundle_root_; }

  std::optional<Failure> on_part(std::string_view payload);
  std::optional<Failure> on_ship_file(std::string_view payload);
  std::optional<Failure> on_data(std::string bytes);
  std::optional<Failure> on_data_end();
  bool in_progress() const { return delivering_ || shipped_; }

  // The job's own folder, made when first asked for.
  Result<std::string> job_directory();
  // Empty if no bundle was requested.
  std::string job_directory_if_any() const { return directory_ ? directory_->path() : ""; }

  // To be called each hour.
  void renew_marks() const;

  // Removes the job's folder, the marks and whatever is unfinished; and of the cache what is beyond
  // its limits, for a second at most.
  void clean_up();

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

  Failure cache_failure(const Error& error) const;
  Failure ship_failure(const Error& error) const;
  Failure protocol_failure(const std::string& what) const;
  void mark(Place& place, const std::string& bundle);
  void note_use_of(const Place& place) const;
  void keep_limits() const;
  bool find_bundle();
  void use_parts_of_others();
  Result<std::unique_ptr<BundleCache::Arrival>> open_arrival();
  Status begin_again();
  Status settle(Status tried);  // goes on in the next place when this one was of no use
  Status complete_part();

  Source source_;
  std::string bundle_root_;
  ShimState& share_;
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
  std::optional<JobDirectory> directory_;
  std::unique_ptr<FileUnpacker> shipped_;
};

}  // namespace hora::launcher
