// SPDX-License-Identifier: Apache-2.0
// Options that users of other launchers type from habit, and what horarun calls them. Only for the
// error about an unknown option and its reference page; none of them is accepted.  [pure]
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace hora::launcher {

enum class PeerAnswer {
  kCalled,        // `answer` is the option of horarun
  kNotNeeded,     // `answer` is the reason
  kNotAvailable,  // `answer` is what horarun does instead
};

struct PeerOption {
  std::string_view name;   // as it is typed there: "--bind-to"
  std::string_view peers;  // "mpirun, Hydra"
  PeerAnswer kind = PeerAnswer::kCalled;
  std::string_view answer;     // "--bind core"
  std::string_view note = {};  // of kCalled: where the two differ
};

// Sorted by name without its dashes.
std::span<const PeerOption> peer_options();

// With one dash or two, and with underscores in place of dashes; nullptr when no peer has it.
const PeerOption* find_peer_option(std::string_view name);

// "horarun calls this --bind core", "it is not needed: ..."
std::string peer_answer_text(const PeerOption& option);

// The same for values of an option that both have, as the end of an error: "; ppr:2:node is -N 2".
// Empty when no peer takes this value.
std::string peer_value_answer(std::string_view option, std::string_view value);

// The table of docs/reference/peer-options.md.
std::string peer_option_reference();

}  // namespace hora::launcher
