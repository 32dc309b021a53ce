// SPDX-License-Identifier: Apache-2.0
// Folders of the user's that go to the hosts of a job: what is in them, cut into parts that are
// called by their contents. Hosts keep parts, so only what has changed travels again.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "launcher/build/part_file.h"
#include "launcher/build/tree_listing.h"
#include "launcher/build/tree_memory.h"
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
  std::vector<std::string> left_out;  // as in TreeListing
};

// Reads every file that `memory` does not know, to hash it. Errors are those of list_tree() and of
// reading; kInterrupted as check_interrupted() says.
Result<UserTree> read_user_tree(const std::vector<TreeRoot>& roots, std::uint64_t most_bytes,
                                TreeMemory& memory);

// The same for what was listed; hosts get its files as `head` and `replaced` say.
Result<UserTree> make_user_tree(TreeListing listing, TreeMemory& memory);

// What threads that pack tell the one that waits for them, and what it tells them.
struct PackingState {
  std::atomic<std::uint64_t> read_bytes{0};
  std::atomic<bool> over{false};  // nobody needs it any more: end soon
};

// The part as the frames that carry it to an agent: kPart, kData..., kDataEnd. Reads the files
// again: one that has changed since is an error. Any thread may call.
Result<std::shared_ptr<const std::string>> tree_part_frames(const TreePart& part,
                                                            PackingState& state);

}  // namespace hora::launcher
