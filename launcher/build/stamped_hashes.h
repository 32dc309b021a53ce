// SPDX-License-Identifier: Apache-2.0
// A file of the launcher's memory: SHA-256 hashes of files, each with what the kernel said of the
// file when it was read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "launcher/build/file_stamp.h"

namespace hora::launcher {

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
// Those whose names begin with `prefix` and that nobody has written for a month.
void remove_old_stamped_hashes(const std::string& folder, const std::string& prefix);

// CLOCK_REALTIME, as file systems stamp files.
std::int64_t file_clock_ns();
// Whether a file that was read from `now_ns` on would have another stamp if it changed meanwhile or
// later.
bool is_settled(const FileStamp& stamp, std::int64_t now_ns);

}  // namespace hora::launcher
