// SPDX-License-Identifier: Apache-2.0
// Folders of the user's that go to the hosts of a job: what is in them, cut into parts that are
// called by their content.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/parts/hashes.h"
#include "launcher/parts/part_file.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// The contents of the user's folders: names, sizes and times, before any file is read.

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
  // Entries that hosts could not use: links that lead out of the folder, sockets, devices. "data ->
  // /mnt".
  std::vector<std::string> left_out;
};

// Folders of version control, and Python's caches of compiled modules, are not for hosts. kUsage:
// no such folder, or it holds more than `most_bytes`.
Result<TreeListing> list_tree(const std::vector<TreeRoot>& roots, std::uint64_t most_bytes);

// Two folders whose contents go to one place may have the same name in both.
Status check_names(const TreeListing& listing);

// Folders of the user's that go to the hosts of a job: what is in them, cut into parts that are
// called by their contents. Hosts keep parts, so only what has changed travels again.

struct TreePart {
  std::string hash;
  std::vector<PartFile> files;  // sorted by path
  std::uint64_t bytes = 0;
};

struct UserTree {
  std::vector<TreePart> parts;
  std::uint64_t bytes = 0;
  std::vector<std::string> left_out;  // as in TreeListing
};

// Reads every file that `memory` does not know, to hash it. Errors are those of list_tree() and of
// reading; kInterrupted as check_interrupted() says.
Result<UserTree> read_user_tree(const std::vector<TreeRoot>& roots, std::uint64_t most_bytes,
                                TreeMemory& memory);

// The same for what was listed; hosts get its files as `head` and `replaced` say.
Result<UserTree> make_user_tree(TreeListing listing, TreeMemory& memory);

// Messages between the packing threads and the thread that waits for them.
struct PackingState {
  std::atomic<std::uint64_t> read_bytes{0};
  std::atomic<bool> over{false};  // no longer needed: end soon
};

// The part as the frames that carry it to an agent: kPart, kData..., kDataEnd. Reads the files
// again: one that has changed since is an error. Any thread may call.
Result<std::shared_ptr<const std::string>> tree_part_frames(const TreePart& part,
                                                            PackingState& state);

}  // namespace hora::launcher
