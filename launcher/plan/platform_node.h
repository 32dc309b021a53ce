// SPDX-License-Identifier: Apache-2.0
// This node, where a platform runs the same command on all nodes of a job (launcher/platforms/).
// [pure]
#pragma once

#include <cstdint>
#include <string>

namespace hora::launcher {

struct PlatformNode {
  std::string platform;    // its title
  std::string key;         // a secret that all nodes have, and only they
  std::string head;        // the address of node 0, for the others
  std::uint16_t port = 0;  // there
  std::string name;        // of this node, among the hosts of the job
  bool is_first = false;   // node 0: the job is here, and the others join it
};

}  // namespace hora::launcher
