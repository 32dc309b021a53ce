// SPDX-License-Identifier: Apache-2.0
// The directories on a host: those that hold a cache, what is temporary in one, the private one of
// a job, and how a tree is removed.
#pragma once

#include <time.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// Removes a directory and all in it; never follows a symbolic link, never leaves the tree.

// A tree that is not there is no error. Goes on past what cannot be removed; the error is that of
// the first. Takes as long as the file system does; any thread may call.
Status remove_tree(const std::string& path);

// A private folder for one job on one host: the files that the user ships. The destructor removes
// it with all in it. One thread at a time.
class JobDirectory {
 public:
  // In $TMPDIR, /tmp, /var/tmp or /dev/shm, the first that works. `announce` gets the path before
  // it exists, and an empty one once it is gone.
  static Result<JobDirectory> create(std::function<Status(const std::string&)> announce);
  JobDirectory(JobDirectory&& other) noexcept;
  JobDirectory& operator=(JobDirectory&&) = delete;
  ~JobDirectory();

  const std::string& path() const { return path_; }

 private:
  JobDirectory(std::string path, std::function<Status(const std::string&)> announce)
      : path_(std::move(path)), announce_(std::move(announce)) {}
  std::string path_;  // empty: moved from
  std::function<Status(const std::string&)> announce_;
};

// The directories of this account that may hold a cache. Reads the environment; makes nothing.

// In the order in which the start script tries them (transports/bootstrap.cpp), from the same
// variables: $XDG_CACHE_HOME or ~/.cache, $TMPDIR or /tmp, /dev/shm.
std::vector<std::string> cache_places();

// `first` and those that follow it; `first` alone when it is none of them.
std::vector<std::string> cache_places_from(const std::string& first);

// One directory of the cache, and its temporary entries: bundles on their way in, marks of use,
// files that are being shipped. Several hosts may see the same directory through a shared home, and
// a lock often reaches no further than the kernel or the mount that took it. So the name of a
// temporary entry says where it was made. Seen from there, a free lock proves that its owner is
// gone; seen from elsewhere, only its age does, by the clock of the file system, since those of the
// hosts may differ. Calls take as long as the file system does; none waits for a lock. One thread
// at a time.

// Names. An agent is called by the SHA-256 of the program, a bundle by its hash alone (is_hash()).
inline constexpr std::string_view kAgentPrefix = "agent-";
inline constexpr std::string_view kNotePrefix = ".verified-";      // own_image.h
inline constexpr std::string_view kShippedPrefix = ".ship-";       // transports/bootstrap.cpp
inline constexpr std::string_view kIncomingPrefix = ".incoming-";  // directories: bundle_cache.h
inline constexpr std::string_view kUsePrefix = ".used-";           // directories
inline constexpr std::size_t kTagSize = 16;  // of the place in a name, and of its random word

// An entry untouched for this long has no owner: transfers take minutes, and marks of use are
// renewed each hour.
inline constexpr long kAbandonedAfterS = 24 * 3600;

class CacheDirectory {
 public:
  // It must be ours alone: a symbolic link, another owner, or a place where others could put
  // another one is an error that names the path. Other users' rights are taken away.
  static Result<CacheDirectory> open(const std::string& path);

  int fd() const { return directory_.get(); }
  const std::string& path() const { return path_; }
  std::string entry_path(const std::string& name) const { return path_ + "/" + name; }
  Result<std::vector<std::string>> names() const;  // in no order

  // A name that is unique on all hosts: PREFIX, our view's identifier, a random word.
  std::string temporary_name(std::string_view prefix) const;

  struct LockedDirectory {
    std::string name;
    os::Fd lock;  // the directory itself; its lock is ours for as long
  };
  // Makes a directory of a temporary name that ends in `suffix`. `announce` gets its path before
  // that exists.
  Result<LockedDirectory> make_held(
      std::string_view prefix, std::string_view suffix,
      const std::function<Status(const std::string&)>& announce) const;

  // What is known about the owner of a temporary entry.
  struct Owner {
    bool gone = false;
    bool here = false;          // his lock says so; else the age
    std::optional<long> age_s;  // since he made or renewed it
    os::Fd lock;                // valid: it is ours now
  };
  Owner owner_of(const std::string& name) const;

  // The file system's own clock, a server's for a network mount: those of two hosts may differ by
  // more than the age that matters. Nothing where the directory cannot be touched.
  std::optional<time_t> now() const;
  // The modification time of an entry is that of its last use. A file system that refuses it does
  // no harm.
  void touch(const std::string& name) const;
  std::optional<time_t> touched_at(const std::string& name) const;

  // What killed agents, shims and shells have left, here or on other hosts. What cannot be removed
  // is left to the next cleaner.
  void remove_debris() const;

 private:
  CacheDirectory(std::string path, os::Fd directory, std::string here)
      : path_(std::move(path)), directory_(std::move(directory)), here_(std::move(here)) {}

  std::string path_;
  os::Fd directory_;
  std::string here_;  // this kernel's and this mount's view of the directory; empty: not known
};

}  // namespace hora::launcher
