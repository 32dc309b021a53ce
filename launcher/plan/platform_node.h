// SPDX-License-Identifier: Apache-2.0
// This node, where a platform runs the same command on all nodes of a job (launcher/platforms/).
// [pure]
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace hora::launcher {

struct PlatformNode {
  std::string platform;           // its title
  std::string key;                // that all nodes have, and only they if they share a secret
  std::string head;               // the address of node 0, for the others
  std::uint16_t port = 0;         // there
  std::string name;               // of this node, among the hosts of the job
  std::optional<int> slots = {};  // of this node; none: one for each GPU, or one
  bool is_first = false;          // node 0: the job is here, and the others join it
};

}  // namespace hora::launcher
