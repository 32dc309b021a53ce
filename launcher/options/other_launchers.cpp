// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/other_launchers.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "launcher/options/option_table.h"
#include "launcher/options/usage_text.h"
#include "launcher/text/text.h"
#include "launcher/text/user_input.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

// Options typed from habit are looked up only after the names that horarun and horovodrun have, so
// no row can take a meaning away. Names that two peers use for different things have the answer of
// both. The unit tests check that each row is reached, and that the option it names exists.

namespace {

using enum PeerAnswer;

constexpr PeerOption kPeerOptions[] = {
#include "launcher/options/peer_options.inc"
};

// The name without its dashes: users of mpirun and Hydra write long names with one or two.
constexpr std::string_view bare(std::string_view name) {
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  return name;
}

// The look-up is a binary search, so a row in the wrong place would never be found.
static_assert(std::is_sorted(std::begin(kPeerOptions), std::end(kPeerOptions),
                             [](const PeerOption& a, const PeerOption& b) {
                               return bare(a.name) < bare(b.name);
                             }));

}  // namespace

std::span<const PeerOption> peer_options() { return kPeerOptions; }

// "--bind_to" and "-bind-to" are one option: DeepSpeed and accelerate write underscores.
const PeerOption* find_peer_option(std::string_view name) {
  // One letter after two dashes is not an option of any launcher.
  if (name.size() == 3 && name.starts_with("--")) return nullptr;
  std::string key(bare(name));
  std::replace(key.begin(), key.end(), '_', '-');
  const auto* const found = std::lower_bound(
      std::begin(kPeerOptions), std::end(kPeerOptions), key,
      [](const PeerOption& option, const std::string& text) { return bare(option.name) < text; });
  return found != std::end(kPeerOptions) && bare(found->name) == key ? found : nullptr;
}

std::string peer_answer_text(const PeerOption& option) {
  const std::string answer(option.answer);
  switch (option.kind) {
    case kNotNeeded:
      return "it is not needed: " + answer;
    case kNotAvailable:
      return "it is not available: " + answer;
    case kCalled:
      break;
  }
  const std::string note(option.note);
  return "horarun calls this " + answer + (note.empty() ? "" : " (" + note + ")");
}

namespace {

// Open MPI's --map-by says in which order ranks get cores, Hydra's also where; here hosts are
// filled slot by slot or in turn, and --bind says which cores a rank gets. So both of theirs have
// their answer in --bind. What srun --mpi names is the protocol that the ranks start by: that is
// --pmi.
struct PeerValue {
  std::string_view option;
  std::string_view value;  // without qualifiers
  std::string_view answer;
};

constexpr PeerValue kPeerValues[] = {
    {"--bind", "board", "--bind numa"},
    {"--bind", "hwthread", "--bind core, which gives a rank whole cores"},
    {"--bind", "l1cache", "--bind core"},
    {"--bind", "l2cache", "--bind core"},
    {"--bind", "l3cache", "--bind l3"},
    {"--bind", "package", "--bind socket"},
    {"--map-by", "board", "--bind numa"},
    {"--map-by", "core", "--bind core"},
    {"--map-by", "hwthread", "--bind core"},
    {"--map-by", "l1cache", "--bind core"},
    {"--map-by", "l2cache", "--bind core"},
    {"--map-by", "l3cache", "--bind l3"},
    {"--map-by", "numa", "--bind numa"},
    {"--map-by", "package", "--bind socket"},
    {"--map-by", "socket", "--bind socket"},
    {"--mpi", "none", "to leave --mpi out"},
    {"--mpi", "pmi2", "--pmi pmi1"},
    {"--mpi", "pmix", "--pmi pmix"},
    {"--mpi", "pmix_v3", "--pmi pmix"},
    {"--mpi", "pmix_v4", "--pmi pmix"},
    {"--mpi", "pmix_v5", "--pmi pmix"},
};

// "ppr:2:node" is N ranks for each of something. -N counts by host, so for anything smaller the
// user has to multiply: how many sockets a host has is not known here.
std::string ranks_for_each(std::string_view text) {
  const auto words = split(text, ':');
  if (words.size() < 3) return {};
  std::string counted = "-N " + std::string(words[1]);
  if (words[2] == "node") return counted;
  return counted + " with the ranks of a whole host, and --bind " +
         (words[2].starts_with("l3") ? "l3" : std::string(words[2]));
}

}  // namespace

std::string peer_value_answer(std::string_view option, std::string_view value) {
  const std::string_view word = value.substr(0, value.find(':'));
  std::string answer;
  if (option == "--map-by" && word == "ppr") {
    answer = ranks_for_each(value);
  } else if (option == "--map-by" && (word == "slot" || word == "node")) {
    // Qualifiers, such as slot:PE=4 and node:OVERSUBSCRIBE.
    answer = "--map-by " + std::string(word);
    answer +=
        value.find("PE=") != std::string_view::npos || value.find("pe=") != std::string_view::npos
            ? " --bind core, which shares the cores of a host among its ranks"
            : "; slots may be more than cores";
  } else {
    const auto* const found = std::find_if(
        std::begin(kPeerValues), std::end(kPeerValues),
        [&](const PeerValue& row) { return row.option == option && row.value == word; });
    if (found != std::end(kPeerValues)) answer = found->answer;
  }
  return answer.empty() ? "" : "; horarun calls this " + answer;
}

std::string peer_option_reference() {
  std::string out = "| Option | of | horarun |\n|---|---|---|\n";
  for (const PeerOption& option : kPeerOptions) {
    out += "| `" + std::string(option.name) + "` | " + std::string(option.peers) + " | ";
    if (option.kind == kCalled) {
      out += "`" + markdown_cell(option.answer) + "`";
      if (!option.note.empty()) out += "; " + markdown_cell(option.note);
    } else {
      out += option.kind == kNotNeeded ? "not needed: " : "not available: ";
      out += markdown_cell(option.answer);
    }
    out += " |\n";
  }
  return out;
}

// Such a job looks healthy: each launcher makes a world of its own, and several copies of one
// training run side by side. A launcher in each rank is only a warning, since one for each host may
// be meant. Several horaruns that mpirun has started are an error: each would use all of the hosts.

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

// Only words that could not have become a job get here, so a suggestion takes nothing away: with a
// number of ranks, every word is a program, which the hosts may have and this machine may not.

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
