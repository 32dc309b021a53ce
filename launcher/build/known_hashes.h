// SPDX-License-Identifier: Apache-2.0
// The SHA-256 of files of this machine that are no part of Hora, remembered from launch to launch:
// a vendor's library may have hundreds of megabytes, and every launch has to name it by its hash
// before it knows whether any host lacks it. A file is taken for the one that was read as long as
// the kernel says so: device, inode, size, times of the last change to the nanosecond.
// One thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/build/stamped_hashes.h"
#include "launcher/plan/worker_environment.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

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

  // What is remembered there has proved wrong: the next launch reads everything again.
  static void forget(const std::string& folder);

 private:
  std::string folder_;
  StampedHashes entries_;
  StampedHashes learnt_;
  std::uint64_t read_bytes_ = 0;
};

}  // namespace hora::launcher
