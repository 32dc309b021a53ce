// SPDX-License-Identifier: Apache-2.0
// Names that a launcher asks an agent to create: whatever is accepted stays below the root. The
// input is a path, a NUL, and the target of a symbolic link at that path; and, as a whole, a line
// of /proc/PID/stat and a mountinfo.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/process/job_cgroup.h"
#include "launcher/process/process_table.h"
#include "launcher/store/file_unpacker.h"

using namespace hora::launcher;

namespace {

// Follows `path` from the directory `depth` levels below the root; false when it leaves the root
// at any step.
bool stays_inside(int depth, std::string_view path) {
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part == "..") {
      if (--depth < 0) return false;
    } else if (!part.empty() && part != ".") {
      ++depth;
    }
    path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t nul = bytes.find('\0');
  const std::string_view path = bytes.substr(0, nul);
  if (check_relative_path(path)) {
    if (path.empty() || path.front() == '/' || !stays_inside(0, path)) std::abort();
    if (nul != std::string_view::npos) {
      const std::string_view target = bytes.substr(nul + 1);
      int depth = 0;
      for (const char c : path) depth += c == '/';
      if (check_link_target(path, target)) {
        if (target.front() == '/' || !stays_inside(depth, target)) std::abort();
      }
    }
  }
  (void)parse_process_stat(bytes);
  (void)own_cgroup_directory(bytes, "0::/x\n");
  (void)own_cgroup_directory("31 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n", bytes);
  return 0;
}
