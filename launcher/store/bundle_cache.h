// SPDX-License-Identifier: Apache-2.0
// The directory on a host where bundles stay from job to job, each under a name derived from its
// parts. An entry appears whole, by one rename, or not at all; the loser of a race uses the
// winner's entry. A part that another entry has is linked and not sent again; entries do not depend
// on each other. Every call takes as long as the file system does. One thread at a time.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/protocol/messages.h"
#include "launcher/store/directories.h"
#include "launcher/store/file_unpacker.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// The parts of the entry with this name; none: it is not a bundle, or is damaged.
std::vector<BundlePart> parts_of_entry(const CacheDirectory& directory, const std::string& name);

// Copies all files of an entry, by its path, into an existing directory.
Status copy_bundle(const std::string& entry, const std::string& directory);

class BundleCache {
 public:
  // An existing one. It must be ours alone; a file system that does not execute is an error, too.
  static Result<BundleCache> open(const std::string& path);
  // Makes it when it is missing.
  static Result<BundleCache> create(const std::string& path);

  const CacheDirectory& directory() const { return directory_; }

  // Path of the entry; nothing when it is not there, or has lost a file since.
  std::optional<std::string> find(const std::string& name) const;

  // A complete part of an existing entry.
  struct Source {
    std::string entry;  // the path
    BundlePart part;
  };
  std::map<std::string, Source> parts() const;  // by hash, of all entries

  class Arrival;
  // Starts an entry. `announce` gets the path of the unfinished entry before that exists, and an
  // empty one once it is gone, so that the shim can remove it if we are killed.
  Result<std::unique_ptr<Arrival>> begin(std::function<Status(const std::string&)> announce) const;

 private:
  explicit BundleCache(CacheDirectory directory) : directory_(std::move(directory)) {}

  CacheDirectory directory_;
};

// A bundle on its way into the cache, which must outlive it. Destroyed before finish(), it removes
// what it wrote. kUsage is the code of errors in the received data.
class BundleCache::Arrival {
 public:
  ~Arrival();
  Arrival(const Arrival&) = delete;
  Arrival& operator=(const Arrival&) = delete;

  // A part that another entry has, or another arrival.
  Status adopt(const Source& source);
  Status adopt(const Arrival& other, const BundlePart& part);

  // A part that is sent: a header, data, an end.
  Status begin_part(BundlePart part);
  Status write(std::string_view packed) { return unpacker_->write(packed); }
  Status end_part();

  const std::vector<BundlePart>& parts() const { return manifest_.parts; }  // that are here
  bool has(const std::string& part_hash) const;

  // The path of the entry: ours, or that of an agent that was faster.
  Result<std::string> finish();

 private:
  friend class BundleCache;
  explicit Arrival(const CacheDirectory& directory) : directory_(directory) {}
  std::string path() const { return directory_.entry_path(temporary_); }
  Status write_manifest();
  Result<std::string> move_into_place();
  void discard();

  const CacheDirectory& directory_;
  BundleManifest manifest_;
  std::function<Status(const std::string&)> announce_;
  std::string temporary_;  // name in the cache; empty: none
  os::Fd lock_;            // the directory itself; held while it is in use
  BundlePart arriving_;
  std::unique_ptr<FileUnpacker> unpacker_;  // of the part that is arriving
};

}  // namespace hora::launcher
