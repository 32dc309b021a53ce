// SPDX-License-Identifier: Apache-2.0
// A file as the kernel knows it. Who changes its contents changes one of these.  [pure]
#pragma once

#include <sys/stat.h>

#include <cstdint>

namespace hora::launcher {

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

}  // namespace hora::launcher
