// SPDX-License-Identifier: Apache-2.0
// The environment of each rank, from a host's order.  [pure]
// Later wins: this machine's own (those that the order asks for), the order's, the rank's, then the
// agent's (job id, mark). The paths to prepend come before whatever a variable held. Bytes are kept
// as they are.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

using Variable = std::pair<std::string, std::string>;

// One rank's "NAME=VALUE" strings, as execve wants them. Borrows from the HostEnvironment.
struct RankEnvironment {
  std::vector<std::string> own;                        // this rank's strings
  std::vector<char*> pointers;                         // null-terminated
  std::string_view find(std::string_view name) const;  // value, or empty
};

class HostEnvironment {
 public:
  // Replacements of "@bundle@" and "@environment@" in the order's paths.
  struct Places {
    std::string_view bundle;
    std::string_view environment = {};
  };
  // `machine` is the agent's own environment, from which order.own_variables are taken. An error
  // when a place is needed and empty, or when a name or value cannot be an environment string
  // ('=' in a name, NUL).
  static Result<HostEnvironment> build(const HostOrder& order, const char* const* machine,
                                       const Places& places, std::vector<Variable> agent_variables);

  RankEnvironment for_rank(const RankOrder& rank) const;

 private:
  std::string joined(const std::string& name, std::string_view value) const;

  std::vector<std::string> strings_;
  std::unordered_map<std::string, std::size_t> index_;  // name to place in strings_
  std::vector<Variable> prepend_;                       // "@bundle@" replaced
  std::vector<Variable> agent_variables_;
};

}  // namespace hora::launcher
