// SPDX-License-Identifier: Apache-2.0
#include "launcher/parts/part_file.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace hora::launcher {

// Where to cut depends only on the names nearby, never on a count from the beginning: after a
// change the parts soon are the same as before.

namespace {

constexpr std::uint64_t kLargestPart = 4u << 20;  // of several files
constexpr std::uint64_t kFilesPerPart = 64;       // on average, in one folder
// site-packages/NAME of a virtual environment is lib/python3.11/site-packages/NAME.
constexpr int kDeepestFolder = 4;
constexpr std::size_t kMostFolders = 2'000;  // with more, cuts at higher ones are enough

// FNV-1a: the same on every machine, and any will do.
std::uint64_t number_of(std::string_view text) {
  std::uint64_t number = 0xcbf29ce484222325u;
  for (const char c : text) {
    number = (number ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  return number ^ (number >> 32);
}

// The first folders of the path, at most that many.
std::string_view folder_of(std::string_view path, int depth) {
  std::size_t end = 0;
  for (int i = 0; i < depth; ++i) {
    const std::size_t slash = path.find('/', end + (i > 0));
    if (slash == std::string_view::npos) break;
    end = slash;
  }
  return path.substr(0, end);
}

std::size_t count_folders(const std::vector<PartFile>& files, int depth) {
  std::size_t count = 0;
  std::string_view last;
  for (const PartFile& each : files) {
    const std::string_view folder = folder_of(each.file.path, depth);
    count += folder != last;
    last = folder;
  }
  return count;
}

}  // namespace

std::vector<std::vector<PartFile>> cut_tree(std::vector<PartFile> files) {
  std::sort(files.begin(), files.end(),
            [](const PartFile& a, const PartFile& b) { return a.file.path < b.file.path; });
  int depth = kDeepestFolder;
  while (depth > 0 && count_folders(files, depth) > kMostFolders) --depth;
  std::vector<std::vector<PartFile>> parts;
  std::uint64_t bytes = 0;
  std::string folder;
  bool cut = true;
  for (PartFile& each : files) {
    const std::string its_folder(folder_of(each.file.path, depth));
    if (cut || its_folder != folder || bytes + each.file.size_bytes > kLargestPart) {
      parts.emplace_back();
      bytes = 0;
    }
    folder = its_folder;
    bytes += each.file.size_bytes;
    cut = number_of(each.file.path) % kFilesPerPart == 0;
    parts.back().push_back(std::move(each));
  }
  return parts;
}

}  // namespace hora::launcher
