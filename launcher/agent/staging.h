// SPDX-License-Identifier: Apache-2.0
// What a launcher sends before the order: bundles and folders of the user's, into the cache, and
// files for the job.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/agent/shim.h"
#include "launcher/plan/cache_limits.h"
#include "launcher/protocol/messages.h"
#include "launcher/store/bundle_cache.h"
#include "launcher/store/cache_clean.h"
#include "launcher/store/directories.h"
#include "launcher/store/file_unpacker.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// Announces to the shim what to remove if a kill prevents the agent from doing it.

inline std::function<Status(const std::string&)> announcer(char (&text)[PATH_MAX]) {
  return [&text](const std::string& path) -> Status {
    if (!set_shared_text(text, path)) {
      return make_error(ErrorCode::kFailed, "the path " + path.substr(0, 80) + "... is too long");
    }
    return Ok{};
  };
}

// One bundle that a job needs on this host, from the question whether it is here to the last of its
// parts. When a cache refuses it (full, read-only, noexec), the next directory gets it. Owns the
// files it has made on disk. Calls take as long as the file system does, on the agent's thread.

class BundleStaging {
 public:
  struct Source {
    // Where bundles may be, the first choice first; none: nothing is kept here.
    std::vector<std::string> cache_directories;
    std::string agent_sha256;   // of this agent, when it lies in the first of them
    bool cleans_cache = false;  // its rank does, see store/directories.h
  };
  BundleStaging(Source source, ShimState::BundleSlots& slots);

  // Looks for the bundle that has these parts (hashes), and marks it as used. If it is not here,
  // starts it from the parts that are, and returns the missing ones. A cache that cannot be used is
  // not a failure before it is needed.
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
  // A directory of the cache. Used entries are marked for the lifetime of this object.
  struct MarkedCache {
    MarkedCache(std::string directory, char (&text)[PATH_MAX])
        : path(std::move(directory)), announced_mark(text) {}
    std::string path;
    char (&announced_mark)[PATH_MAX];
    std::optional<BundleCache> cache;
    std::string marked_bundle;
    std::optional<UseMark> mark;
  };

  Failure failure_of(const Error& error) const;
  void mark(MarkedCache& place, const std::string& bundle);
  void note_use_of(const MarkedCache& place) const;
  bool find_bundle();
  void use_parts_of_others();
  Result<std::unique_ptr<BundleCache::Arrival>> open_arrival();
  Status begin_again();
  Status settle(Status tried);  // goes on in the next place when this one was of no use
  Status complete_part();

  Source source_;
  ShimState::BundleSlots& slots_;
  std::string root_;
  std::vector<MarkedCache>
      places_;  // the agent's own, and those to turn to when a bundle does not fit
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

// Data that a launcher sends before the order: parts of the runtime and of the user's folders, into
// a cache, and files for the job, into its folder. One at a time: a header, data, an end. Every
// method returns nothing, or the failure that ends the job. Owns the files it has made on disk.
// Calls take as long as the file system does, on the agent's thread.

class Staging {
 public:
  struct Source {
    std::string cache_directory;  // where this agent lies; empty: nowhere in a cache
    std::string agent_sha256;     // of this agent, when it is one of the cache
    std::string local_bundle;     // the bundle, used where it lies; empty: it is in the cache
    bool cleans_cache = false;    // its rank does, see store/directories.h
    CacheLimits limits = {};      // what the job leaves of the cache when it ends; none: all
  };
  Staging(Source source, ShimState& share);

  // Which parts of the runtime (hashes) are not here: BundleStaging::find_missing().
  std::vector<std::string> find_missing(std::vector<std::string> parts);
  // Where the runtime is; empty: not here.
  const std::string& bundle_root() const;
  // The same for the user's folders; once.
  std::vector<std::string> find_missing_of_tree(const OfferTree& offer);
  bool has_tree() const { return tree_ != nullptr || environment_ != nullptr; }
  // Copies the folders into the job's own, when all of their parts are here.
  std::optional<Failure> place_tree();
  // Where the Python environment is; empty: the job has none, or it is not whole.
  std::string environment_root() const { return environment_ ? environment_->root() : ""; }

  std::optional<Failure> on_part(std::string_view payload);
  std::optional<Failure> on_ship_file(std::string_view payload);
  std::optional<Failure> on_data(std::string bytes);
  std::optional<Failure> on_data_end();
  bool in_progress() const { return receiving_ != nullptr || shipped_; }

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
  Failure ship_failure(const Error& error) const;
  std::optional<Failure> place_environment() const;
  void keep_limits() const;

  Source source_;
  ShimState& share_;
  std::vector<std::string> cache_directories_;  // that are looked after when the job ends
  BundleStaging runtime_;
  std::unique_ptr<BundleStaging> tree_;         // null: the job has none
  std::unique_ptr<BundleStaging> environment_;  // likewise
  std::string interpreter_;                     // that the environment uses, of this host
  BundleStaging* receiving_ = nullptr;          // whose part is arriving
  std::optional<JobDirectory> directory_;
  std::unique_ptr<FileUnpacker> shipped_;
};

}  // namespace hora::launcher
