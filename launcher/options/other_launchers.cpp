// SPDX-License-Identifier: Apache-2.0
// Such a job looks healthy: each launcher makes a world of its own, and several copies of one
// training run side by side. It is no error, since one launcher for each host may be meant.
#include "launcher/options/other_launchers.h"

#include <algorithm>
#include <iterator>

#include "launcher/text/shell_words.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kNames[] = {"accelerate", "deepspeed", "horarun", "horovodrun",
                                       "jsrun",      "mpiexec",   "mpirun",  "orterun",
                                       "prterun",    "srun",      "torchrun"};

// What Python runs by -m.
constexpr std::string_view kModules[] = {"accelerate.commands.launch", "deepspeed.launcher.runner",
                                         "horovod.runner.launch", "torch.distributed.launch",
                                         "torch.distributed.run"};

template <typename Table>
bool has(const Table& table, std::string_view word) {
  return std::find(std::begin(table), std::end(table), word) != std::end(table);
}

// Where the module stands in "python3 -u -m module"; 0: there is none.
std::size_t find_module(const std::vector<std::string>& command) {
  for (std::size_t i = 1; i + 1 < command.size() && command[i].starts_with("-"); ++i) {
    if (command[i] == "-m") return i + 1;
    if (command[i] == "-W" || command[i] == "-X") ++i;  // these have a value
  }
  return 0;
}

// How many words name the launcher; 0: it is none.
std::size_t count_launcher_words(const std::vector<std::string>& command) {
  if (command.empty()) return 0;
  const std::string_view path = command.front();
  const std::string_view name = path.substr(path.rfind('/') + 1);
  if (name == "accelerate") return command.size() > 1 && command[1] == "launch" ? 2 : 0;
  if (has(kNames, name)) return 1;
  const std::size_t module = name.starts_with("python") ? find_module(command) : 0;
  return module > 0 && has(kModules, command[module]) ? module + 1 : 0;
}

std::optional<std::string> warning_for(const std::vector<std::string>& command, int ranks) {
  const std::size_t words = count_launcher_words(command);
  if (words == 0) return std::nullopt;
  const auto end = command.begin() + static_cast<std::ptrdiff_t>(words);
  // With options, the number of processes that is meant is among them.
  const bool is_all = words < command.size() && !end->starts_with("-") && ranks > 0;
  return "each rank starts " + quote(quote_shell_words({command.begin(), end})) +
         ", which starts processes of its own; give horarun the program itself: horarun -np " +
         (is_all ? std::to_string(ranks) : "N") + " " + in_our_words(command, words);
}

}  // namespace

bool is_launcher_name(std::string_view word) { return has(kNames, word); }

std::string in_our_words(const std::vector<std::string>& command, std::size_t words) {
  std::vector<std::string> rest(command.begin() + static_cast<std::ptrdiff_t>(words),
                                command.end());
  if (rest.empty() || rest[0].starts_with("-")) return "python3 train.py";
  if (rest[0].ends_with(".py")) rest.insert(rest.begin(), "python3");
  return quote_shell_words(rest);
}

std::optional<std::string> launcher_warning(const JobSpec& job) {
  if (job.programs.empty()) return warning_for(job.command, job.num_proc);
  for (const Program& program : job.programs) {
    if (auto warning = warning_for(program.command, 0)) return warning;
  }
  return std::nullopt;
}

}  // namespace hora::launcher
