// The directory on a host where bundles stay from job to job, each under the name of its content's
// hash. An entry appears whole, by one rename, or not at all; who loses a race uses the winner's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/agent/file_unpacker.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

class BundleCache {
 public:
  // Creates the directory when it is missing. It must be ours alone: a symbolic link, another
  // owner, or a file system that does not execute is an error that names the path.
  static Result<BundleCache> open(const std::string& path);

  // Path of the entry; nothing when it is not there, or has lost a file since.
  std::optional<std::string> find(const std::string& hash) const;

  class Arrival;
  // Starts to unpack an entry. `announce` is told the path of what is unfinished before that
  // exists, and an empty one once it is gone: whoever outlives us can remove it.
  Result<std::unique_ptr<Arrival>> receive(BundleHeader header,
                                           std::function<Status(const std::string&)> announce);

 private:
  BundleCache(std::string path, os::Fd directory)
      : path_(std::move(path)), directory_(std::move(directory)) {}
  void remove_abandoned() const;
  // A new directory under an exclusive lock; an invalid descriptor when it was removed meanwhile.
  Result<os::Fd> make_locked(const std::string& name) const;
  std::string entry_path(const std::string& name) const { return path_ + "/" + name; }

  std::string path_;
  os::Fd directory_;
};

// A bundle on its way into the cache. Destroyed before finish(), it leaves nothing behind.
class BundleCache::Arrival {
 public:
  ~Arrival();
  Arrival(const Arrival&) = delete;
  Arrival& operator=(const Arrival&) = delete;
  Status write(std::string_view compressed) { return unpacker_->write(compressed); }
  // The path of the entry, ours or that of whoever was quicker.
  Result<std::string> finish();

 private:
  friend class BundleCache;
  Arrival(const BundleCache& cache, BundleHeader header)
      : cache_(cache), header_(std::move(header)) {}
  Status write_manifest();
  Result<std::string> move_into_place();
  void discard();

  const BundleCache& cache_;
  BundleHeader header_;
  std::function<Status(const std::string&)> announce_;
  std::string temporary_;  // name in the cache; empty: none
  os::Fd lock_;            // held while the temporary directory is in use
  std::unique_ptr<FileUnpacker> unpacker_;
};

}  // namespace hora::launcher
