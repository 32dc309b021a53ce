// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/env_words.h"

#include <algorithm>

namespace hora::launcher {

namespace {

std::string_view name_of(std::string_view variable) {
  return variable.substr(0, std::min(variable.find('='), variable.size()));
}

}  // namespace

// Stops at the first word that is neither an option that we know nor a variable: that is the
// program. A PATH among the variables would be the one in which env looks for the program.
CommandWords without_env(const std::vector<std::string>& words) {
  CommandWords found;
  std::size_t at = 1;
  for (; at < words.size(); ++at) {
    const std::string& word = words[at];
    if (word == "-u" && at + 1 < words.size()) {
      found.unset.push_back(words[++at]);
    } else if (word.substr(0, 1) != "-" && word.find('=') != std::string::npos) {
      found.set.push_back(word);
    } else {
      break;
    }
  }
  const auto is_path = [](const std::string& variable) { return name_of(variable) == "PATH"; };
  const bool is_plain = words.at(0) == "env" && at < words.size() &&
                        words[at].substr(0, 1) != "-" &&
                        std::none_of(found.set.begin(), found.set.end(), is_path) &&
                        std::none_of(found.unset.begin(), found.unset.end(), is_path);
  // Anything else is left to env itself, which knows all of its options.
  if (!is_plain) return {words, {}, {}};
  found.argv.assign(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
  return found;
}

// The names alone count: env sets a variable again even if it has the same value.
bool is_replaced(const CommandWords& command, std::string_view variable) {
  const auto is_same = [name = name_of(variable)](const std::string& each) {
    return name_of(each) == name;
  };
  return std::any_of(command.unset.begin(), command.unset.end(), is_same) ||
         std::any_of(command.set.begin(), command.set.end(), is_same);
}

}  // namespace hora::launcher
