// SPDX-License-Identifier: Apache-2.0
// The files of --ship, packed once for all hosts. Never changes once it is made: the links of all
// hosts share the frames, which live as long as the last of them needs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::launcher {

class ShipFiles {
 public:
  ShipFiles() = default;
  // Reads and packs them. For large files this takes longer than agents bear silence, so it happens
  // before any host is connected.
  explicit ShipFiles(const std::vector<std::string>& paths);

  // Why a file could not be packed.
  const Status& status() const { return status_; }
  const std::vector<std::shared_ptr<const std::string>>& frames() const { return frames_; }

 private:
  std::vector<std::shared_ptr<const std::string>> frames_;
  Status status_ = Ok{};
};

}  // namespace hora::launcher
