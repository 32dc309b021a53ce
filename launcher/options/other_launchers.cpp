// SPDX-License-Identifier: Apache-2.0
// Such a job looks healthy: each launcher makes a world of its own, and several copies of one
// training run side by side. A launcher in each rank is only a warning, since one for each host may
// be meant. Several horaruns that mpirun has started are an error: each would use all of the hosts.
#include "launcher/options/other_launchers.h"

#include <algorithm>
#include <iterator>

#include "launcher/text/shell_words.h"
#include "launcher/text/usage_error.h"
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

// By these a process knows in how many copies it was started.
struct StartedBy {
  std::string_view launcher;
  const char* size;
};
constexpr StartedBy kStartedBy[] = {
    {"mpirun", "OMPI_COMM_WORLD_SIZE"}, {"mpirun", "MV2_COMM_WORLD_SIZE"}, {"mpiexec", "PMI_SIZE"}};

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

Status check_started_once(const ProcessInputs& inputs, const JobSpec& job) {
  // Ranks of ours have the variables of --pmi: launcher_warning() is for them.
  if (inputs.variable("HOROVOD_RANK")) return Ok{};
  for (const StartedBy& row : kStartedBy) {
    const std::string size = inputs.variable(row.size).value_or("");
    // Those of srun, which the engine knows better.
    if (parse_int<int>(size).value_or(1) <= 1) continue;
    if (inputs.variable("SLURM_STEP_NUM_TASKS") == size) continue;
    const std::string program = job.command.empty() ? "--smoke" : quote_shell_words(job.command);
    return usage(std::string(row.launcher) + " has started " + size + " of this horarun (" +
                 row.size + "=" + size +
                 "), and each would run the whole job; start one: horarun -np " + size + " " +
                 program + "\n  or let " + std::string(row.launcher) +
                 " start the ranks: horarun -np " + size + " --mpi " + program +
                 "\n  or run a job of its own in each: " + std::string(row.launcher) + " -n " +
                 size + " env -u " + row.size + " horarun ...");
  }
  return Ok{};
}

}  // namespace hora::launcher
