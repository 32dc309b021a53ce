// SPDX-License-Identifier: Apache-2.0
// The directory on a host where bundles stay from job to job, each under the name of its content's
// hash. An entry appears whole, by one rename, or not at all; who loses a race uses the winner's.
// Every call takes as long as the file system does. One thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/agent/cache_directory.h"
#include "launcher/agent/file_unpacker.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

class BundleCache {
 public:
  // One that is there. It must be ours alone; a file system that does not execute is an error, too.
  static Result<BundleCache> open(const std::string& path);
  // Makes it when it is missing.
  static Result<BundleCache> create(const std::string& path);

  const CacheDirectory& directory() const { return directory_; }

  // Path of the entry; nothing when it is not there, or has lost a file since.
  std::optional<std::string> find(const std::string& hash) const;

  class Arrival;
  // Starts to unpack an entry. `announce` is told the path of what is unfinished before that
  // exists, and an empty one once it is gone: whoever outlives us can remove it. kUsage is the code
  // of errors that say that what was sent is wrong, here and in Arrival.
  Result<std::unique_ptr<Arrival>> receive(
      BundleHeader header, std::function<Status(const std::string&)> announce) const;

 private:
  explicit BundleCache(CacheDirectory directory) : directory_(std::move(directory)) {}

  CacheDirectory directory_;
};

// A bundle on its way into the cache, which must outlive it. Destroyed before finish(), it leaves
// nothing behind.
class BundleCache::Arrival {
 public:
  ~Arrival();
  Arrival(const Arrival&) = delete;
  Arrival& operator=(const Arrival&) = delete;
  Status write(std::string_view compressed) { return unpacker_->write(compressed); }
  // The path of the entry: ours, or that of an agent that was faster.
  Result<std::string> finish();

 private:
  friend class BundleCache;
  Arrival(const CacheDirectory& directory, BundleHeader header)
      : directory_(directory), header_(std::move(header)) {}
  Status write_manifest();
  Result<std::string> move_into_place();
  void discard();

  const CacheDirectory& directory_;
  BundleHeader header_;
  std::function<Status(const std::string&)> announce_;
  std::string temporary_;  // name in the cache; empty: none
  os::Fd lock_;            // held while the temporary directory is in use
  std::unique_ptr<FileUnpacker> unpacker_;
};

}  // namespace hora::launcher
