// SPDX-License-Identifier: Apache-2.0
// What --ship names: files, packed once for all hosts, and folders, read and hashed. Never changes
// once it is made: the links of all hosts share the frames, which live as long as the last of them
// needs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "launcher/build/user_tree.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

class ShipFiles {
 public:
  ShipFiles() = default;
  // Reads and packs them; folders may have `most_bytes` together. For large files this takes longer
  // than agents bear silence, so it happens before any host is connected.
  ShipFiles(const std::vector<std::string>& paths, std::uint64_t most_bytes);

  // Why something could not be packed.
  const Status& status() const { return status_; }
  const std::vector<std::shared_ptr<const std::string>>& frames() const { return frames_; }
  // All folders together; without parts: there is none.
  const UserTree& tree() const { return tree_; }

 private:
  Status pack(const std::vector<std::string>& paths, std::uint64_t most_bytes);

  std::vector<std::shared_ptr<const std::string>> frames_;
  UserTree tree_;
  Status status_ = Ok{};
};

}  // namespace hora::launcher
