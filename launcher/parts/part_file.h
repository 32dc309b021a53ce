// SPDX-License-Identifier: Apache-2.0
// The files of a part of the bundle as the kernel knows them, and how the files of a tree are cut
// into parts.  [pure]
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/protocol/messages.h"

namespace hora::launcher {

// A file as the kernel knows it. Who changes its contents changes one of these.

struct FileStamp {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size_bytes = 0;
  std::int64_t modified_ns = 0;
  std::int64_t changed_ns = 0;  // of the inode: programs can set the other time, and not this one
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

inline FileStamp stamp_of(const struct stat& info) {
  const auto nanoseconds = [](const timespec& time) {
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  return {info.st_dev, info.st_ino, static_cast<std::uint64_t>(info.st_size),
          nanoseconds(info.st_mtim), nanoseconds(info.st_ctim)};
}

// One file of a part of the bundle.

struct PartFile {
  BundleFile file;       // as it lies on hosts
  std::string sha256;    // lower-case hex
  std::string source;    // its path on this machine
  FileStamp stamp = {};  // of the source, when it was looked at
  // Hosts get these bytes in place of the first `replaced` ones.
  std::string head = {};
  std::size_t replaced = 0;
};

// Cuts the files of a tree into parts.

// Sorts the files by their paths and cuts where a folder ends, and between files by their names, so
// that a file that is added, removed or changed changes one or two parts, of a few MB each. A large
// file is a part of its own.
std::vector<std::vector<PartFile>> cut_tree(std::vector<PartFile> files);

}  // namespace hora::launcher
