// SPDX-License-Identifier: Apache-2.0
// SHA-256 of files and parts, remembered from launch to launch for files that have not changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/parts/part_file.h"
#include "launcher/plan/worker_environment.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// SHA-256, in lower-case hex, of bytes that come in pieces.

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void add(std::string_view bytes);
  std::string hex();  // of all of them; nothing is added after it

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The hash of all of it.
std::string sha256_hex(std::string_view bytes);

// The hash that hosts know a part of the bundle by, for parts that are made at launch.

// Sorts the files by their paths first: their order must not matter.
std::string part_hash(std::vector<PartFile>& files);

// A file of the launcher's memory: SHA-256 hashes of files, each with what the kernel said of the
// file when it was read.

struct StampedHash {
  FileStamp stamp;
  std::string sha256;  // lower-case hex
};
using StampedHashes = std::map<std::string, StampedHash>;  // by path

struct MemoryLimits {
  std::size_t bytes = 0;
  std::size_t entries = 0;
};

// None: there is no such file, it is beyond the limits, or it or its folder is not ours alone.
StampedHashes read_stamped_hashes(const std::string& folder, const std::string& name,
                                  const MemoryLimits& limits);
// Makes the folder when it is missing. That this fails costs later launches time and nothing else.
void write_stamped_hashes(const std::string& folder, const std::string& name,
                          const StampedHashes& entries);
void remove_stamped_hashes(const std::string& folder, const std::string& name);
// Those whose names begin with `prefix` and that were not written for a month.
void remove_old_stamped_hashes(const std::string& folder, const std::string& prefix);

// CLOCK_REALTIME, as file systems stamp files.
std::int64_t file_clock_ns();
// Whether a file that was read from `now_ns` on would have another stamp if it changed meanwhile or
// later.
bool is_settled(const FileStamp& stamp, std::int64_t now_ns);

// The SHA-256 of files of this machine that are not part of Hora, remembered from launch to launch:
// a vendor's library may have hundreds of megabytes, and every launch has to name it by its hash
// before it knows whether any host lacks it. A file is unchanged as long as the kernel says so:
// device, inode, size, times of the last change to the nanosecond. One thread at a time.

struct FileHash {
  std::uint64_t size_bytes = 0;
  std::string sha256;
};

class KnownHashes {
 public:
  // `folder` is made when it is missing. If it is not ours alone, or empty, nothing is remembered.
  explicit KnownHashes(std::string folder);

  // Reads the file only if it is not known; in pieces, whatever its size.
  Result<FileHash> of(const std::string& path);

  // Keeps what was learnt for later launches. That this fails costs them time and nothing else.
  void save();

  const std::string& folder() const { return folder_; }
  std::uint64_t read_bytes() const { return read_bytes_; }  // of files that were not known

  // The remembered hash has proved wrong: the next launch reads everything again.
  static void forget(const std::string& folder);

 private:
  std::string folder_;
  StampedHashes entries_;
  StampedHashes learnt_;
  std::uint64_t read_bytes_ = 0;
};

// The hashes of the files of a tree of the user's, remembered from launch to launch: an environment
// may have gigabytes, and every launch has to name them all. A file is taken for the one that was
// read as long as the kernel says so (FileStamp). That a memory is lost costs time and nothing
// else.

class TreeMemory {
 public:
  // `folder` is the launcher's own (launcher_memory_folder()); empty: nothing is remembered.
  // `about` identifies the tree.
  TreeMemory(std::string folder, std::string_view about);

  // Gives the file its hash, if it is known.
  bool recall(PartFile& file) const;

  // A file that has its hash now, and is settled (is_settled()).
  void learn(const PartFile& file);
  // Keeps what is known of these files, and nothing else. The memory is used up by that.
  void save(const std::vector<PartFile>& files);

  // The remembered hash has proved wrong: the next launch reads everything again.
  void forget() const;

 private:
  std::string folder_;
  std::string name_;
  StampedHashes entries_;  // by the path in the tree
  bool learnt_ = false;
};

}  // namespace hora::launcher
