// SPDX-License-Identifier: Apache-2.0
// What users of other launchers type from habit: their options, and programs that start ranks
// elsewhere.  [pure]
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/settings.h"
#include "launcher/plan/job_spec.h"

namespace hora::launcher {

// Options that users of other launchers type from habit, and what horarun calls them. Only for the
// error about an unknown option and its reference page; none of them is accepted.

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

// With one dash or two, and with underscores instead of dashes; nullptr when no peer has it.
const PeerOption* find_peer_option(std::string_view name);

// "horarun calls this --bind core", "it is not needed: ..."
std::string peer_answer_text(const PeerOption& option);

// The same for values of an option that both have, as the end of an error: "; ppr:2:node is -N 2".
// Empty when no peer takes this value.
std::string peer_value_answer(std::string_view option, std::string_view value);

// The table of docs/reference/peer-options.md.
std::string peer_option_reference();

// Programs that start ranks elsewhere, when they are given to horarun.

// Whether it is the name of one.
bool is_launcher_name(std::string_view word);

// The program that the launcher at the begin of `command` would start, as arguments of horarun; an
// example if it has options, which would have to be translated one by one. `words`: how many of
// them name the launcher.
std::string in_our_words(const std::vector<std::string>& command, std::size_t words);

// A warning for a job whose ranks are launchers: each would start its own processes, without
// knowledge of the ranks.
std::optional<std::string> launcher_warning(const JobSpec& job);

// An error (kUsage) where an MPI launcher has started several horaruns, each of which would run the
// whole job.
Status check_started_once(const ProcessInputs& inputs, const JobSpec& job);

// What a user may have meant by a program that does not exist: a mistyped verb, another launcher's
// habit.

// Whether `word` is a file here, or a program in PATH.
bool is_program_here(const std::string& word, const ProcessInputs& inputs);

// For a command without a number of ranks: an error that names what was meant; empty when nothing
// comes close, or it is a program.
std::string answer_to_first_word(const std::vector<std::string>& command,
                                 const ProcessInputs& inputs);

// A note after an error about such a command: that it is not a program here; else empty.
std::string note_on_absence(const std::vector<std::string>& command, const ProcessInputs& inputs);

// "horarun cache list": what of this verb comes close to `word`, as "; did you mean ...?"; else
// empty.
std::string did_you_mean_action(std::string_view word);

}  // namespace hora::launcher
