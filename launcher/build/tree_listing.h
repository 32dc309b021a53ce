// SPDX-License-Identifier: Apache-2.0
// What is in folders of the user's: names, sizes and times, before anything is read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/build/part_file.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// A folder of this machine, and where it is in the tree: "src"; empty: its contents are the tree's.
struct TreeRoot {
  std::string path;
  std::string prefix;
  // Whether a file or a folder, by its path below the root, stays here; none: all travel.
  std::function<bool(const std::string& inside)> skips = {};
  bool keeps_compiled = false;  // __pycache__
};

struct TreeListing {
  std::vector<PartFile> files;
  std::uint64_t bytes = 0;
  // What hosts could not use: links that lead out of the folder, sockets, devices. "data -> /mnt".
  std::vector<std::string> left_out;
};

// Folders of version control, and Python's caches of compiled modules, are not for hosts. kUsage:
// no such folder, or it holds more than `most_bytes`.
Result<TreeListing> list_tree(const std::vector<TreeRoot>& roots, std::uint64_t most_bytes);

// Two folders whose contents go to one place may have the same name in both.
Status check_names(const TreeListing& listing);

}  // namespace hora::launcher
