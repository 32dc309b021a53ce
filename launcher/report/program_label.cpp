// SPDX-License-Identifier: Apache-2.0
#include "launcher/report/program_label.h"

#include "launcher/plan/plan.h"
#include "launcher/report/secrets.h"
#include "launcher/text/user_input.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// Enough for an interpreter, its option and the script.
constexpr std::size_t kWords = 3;
constexpr std::size_t kBytes = 100;

}  // namespace

std::string program_label(const std::vector<Program>& programs, int rank) {
  if (programs.empty()) return {};
  auto words = without_secrets(programs[program_of_rank(programs, rank)].command);
  const bool is_cut = words.size() > kWords;
  if (is_cut) words.resize(kWords);
  return " (" + shortened(visible_line(quote_shell_words(words)), kBytes) +
         (is_cut ? " ...)" : ")");
}

}  // namespace hora::launcher
