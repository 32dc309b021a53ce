// SPDX-License-Identifier: Apache-2.0
// Platforms that run the user's command on every node of a job, each node with its place among
// them in variables or a file. An engine (launcher/engines/) runs it once.  [pure]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/engines/engine.h"

namespace hora::launcher {

struct PlatformNodes {
  int count = 1;                        // that run this command
  std::optional<int> index = {};        // this one's place; nothing: unclear
  std::vector<std::string> names = {};  // by index, addresses or names; empty: unknown
  std::string head = {};        // where the others reach the node of index 0; empty: unknown
  std::uint16_t port = 0;       // that the platform has chosen there; 0: none
  std::vector<int> slots = {};  // by index; empty: one for each GPU of a node
  std::string job = {};         // the platform's id of it; may be empty
  std::string key_file = {};    // the same on all nodes and secret; empty: there is none
  bool is_json = true;          // else the text that names the nodes cannot be read
};

// A row of the table in platform.cpp.
struct PlatformDescriptor {
  std::string_view title = {};  // "SkyPilot"
  std::string_view mark = {};   // what says that it is here: "$SKYPILOT_NODE_IPS", a path
  std::string_view order = {};  // where the order of nodes and their slots come from, for docs
  // Nothing: the platform is not here, or runs the command once.
  std::optional<PlatformNodes> (*find)(const EngineInputs& inputs) = nullptr;
  // Whether nodes can find the one of index 0.
  bool finds_head = true;
  // Users set the same variables in an allocation of an engine, which counts then.
  bool yields_to_engines = false;
};

struct PlatformHere {
  const PlatformDescriptor* platform = nullptr;
  PlatformNodes nodes;  // more than one
};

// Nothing: this process is alone, as far as variables and files say, or is a rank, whose launcher
// has run the command on all nodes. kUsage: what should name the nodes cannot be read.
Result<std::optional<PlatformHere>> platform_here(const EngineInputs& inputs);

// The table of docs/howto/platforms.md.
std::string platform_reference();

// The same number on each of `count` nodes; none where it is not positive.
std::vector<int> slots_on_each(std::optional<int> slots, int count);

}  // namespace hora::launcher
