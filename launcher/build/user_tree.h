// SPDX-License-Identifier: Apache-2.0
// Folders of the user's that go to the hosts of a job: what is in them, cut into parts that are
// called by their contents. Hosts keep parts, so only what has changed travels again.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "launcher/build/part_file.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

struct TreePart {
  std::string hash;
  std::vector<PartFile> files;  // sorted by path
  std::uint64_t bytes = 0;
};

struct UserTree {
  std::vector<TreePart> parts;
  std::uint64_t bytes = 0;
  // What hosts could not use: links that lead out of the folder, sockets, devices. "data -> /mnt".
  std::vector<std::string> left_out;
};

// A folder of this machine, and where it is in the tree: "src"; empty: its contents are the tree's.
struct TreeRoot {
  std::string path;
  std::string prefix;
};

// Reads every file once, to hash it. Folders of version control, and Python's caches of compiled
// modules, are not for hosts. kUsage: no such folder, or it holds more than `most_bytes`.
Result<UserTree> read_user_tree(const std::vector<TreeRoot>& roots, std::uint64_t most_bytes);

// The part as the frames that carry it to an agent: kPart, kData..., kDataEnd. Reads the files
// again: one that has changed since is an error.
Result<std::shared_ptr<const std::string>> tree_part_frames(const TreePart& part);

}  // namespace hora::launcher
