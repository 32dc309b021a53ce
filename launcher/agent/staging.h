// SPDX-License-Identifier: Apache-2.0
// What a launcher sends before the order: parts of the runtime and of the user's folders, into a
// cache, and files for the job, into its folder. One at a time: a header, data, an end. Every
// method's answer is nothing, or the failure that ends the job. Owns what it has made on disk.
// Calls take as long as the file system does, on the agent's thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/agent/bundle_staging.h"
#include "launcher/agent/file_unpacker.h"
#include "launcher/agent/job_directory.h"
#include "launcher/agent/shim.h"
#include "launcher/plan/cache_limits.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher {

class Staging {
 public:
  struct Source {
    std::string cache_directory;  // where this agent lies; empty: nowhere in a cache
    std::string agent_sha256;     // of this agent, when it is one of the cache
    std::string local_bundle;     // the bundle, used where it lies; empty: it is in the cache
    bool cleans_cache = false;    // its rank does, see cache_use.h
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
