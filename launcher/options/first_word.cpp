// SPDX-License-Identifier: Apache-2.0
// Only words that could not have become a job get here, so a suggestion takes nothing away: with a
// number of ranks, every word is a program, which the hosts may have and this machine may not.
#include "launcher/options/first_word.h"

#include <utility>

#include "launcher/options/option_table.h"
#include "launcher/options/other_launchers.h"
#include "launcher/text/did_you_mean.h"
#include "launcher/text/verbs.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// What starts a program elsewhere, besides other launchers.
bool is_start_word(std::string_view word) {
  return word == "exec" || word == "launch" || word == "run" || word == "start";
}

}  // namespace

bool is_program_here(const std::string& word, const ProcessInputs& inputs) {
  return (inputs.has_program && inputs.has_program(word)) ||
         (inputs.has_file && inputs.has_file(word));
}

std::string answer_to_first_word(const std::vector<std::string>& command,
                                 const ProcessInputs& inputs) {
  if (command.empty()) return {};
  const std::string& word = command.front();
  if (is_launcher_name(word) || is_start_word(word)) {
    const std::size_t words = command.size() > 2 && command[1] == "launch" ? 2 : 1;
    return "horarun takes the place of " + quote(word) + ": horarun -np N " +
           in_our_words(command, words);
  }
  // A path is a program, and so is what can be found here: it lacks a number of ranks alone.
  if (word.find('/') != std::string::npos || is_program_here(word, inputs)) return {};
  if (is_verb(word)) {
    return quote(word) + " is a verb only as the first word: horarun " + word + " ...";
  }
  const std::string nothing = "there is no verb or program " + quote(word);
  // Some options are run like verbs: smoke, check-build, show-config.
  if (find_option("--" + word, kVerbLaunch) != nullptr) {
    return nothing + "; did you mean --" + word + "?";
  }
  const auto close = did_you_mean(word, verb_names());
  if (!close.empty()) return nothing + "; did you mean 'horarun " + close.front() + "'?";
  return {};
}

std::string note_on_absence(const std::vector<std::string>& command, const ProcessInputs& inputs) {
  if (command.empty() || command[0].find('/') != std::string::npos) return {};
  if (is_program_here(command[0], inputs)) return {};
  return " (there is no verb or program " + quote(command[0]) + " here)";
}

std::string did_you_mean_action(std::string_view word) {
  // What docker, git, apt and pip call the same.
  constexpr std::pair<std::string_view, std::string_view> kActions[] = {
      {"list", "ls"},      {"show", "ls"},      {"clear", "clean"},
      {"delete", "clean"}, {"purge", "clean"},  {"prune", "clean"},
      {"rm", "clean"},     {"remove", "clean"}, {"cleanup", "clean"}};
  std::string meant;
  for (const auto& [typed, action] : kActions) {
    if (typed == word) meant = action;
  }
  if (const auto close = did_you_mean(word, {"ls", "clean"}); meant.empty() && !close.empty()) {
    meant = close.front();
  }
  return meant.empty() ? "" : "; did you mean 'horarun cache " + meant + "'?";
}

}  // namespace hora::launcher
