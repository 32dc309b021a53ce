// SPDX-License-Identifier: Apache-2.0
// The same lines as scripts/cmake/bundle hashes for the parts of the build
// (docs/reference/bundle.md), so that a part is known by its content, whoever made it: two
// launchers whose machines have the same package send it to a host once.
#include "launcher/build/part_hash.h"

#include <algorithm>
#include <cstdio>

#include "launcher/build/sha256.h"

namespace hora::launcher {

std::string part_hash(std::vector<PartFile>& files) {
  std::sort(files.begin(), files.end(),
            [](const PartFile& a, const PartFile& b) { return a.file.path < b.file.path; });
  std::string lines;
  for (const PartFile& each : files) {
    char numbers[64];
    std::snprintf(numbers, sizeof numbers, "%04o %llu ", static_cast<unsigned>(each.file.mode),
                  static_cast<unsigned long long>(each.file.size_bytes));
    lines += numbers + each.sha256 + " " + each.file.path + "\n";
  }
  return sha256_hex(lines);
}

}  // namespace hora::launcher
