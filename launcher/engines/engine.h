// SPDX-License-Identifier: Apache-2.0
// An engine, a batch system or an operator, hands out machines; and the host lists that several of
// them use.  [pure]
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/host_list.h"
#include "launcher/plan/job_spec.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// An engine hands out machines: a batch system or an operator. Inside of what it has handed out, a
// job needs no -H: hosts and slots are those of the allocation.

// The inputs of an engine: the variables of this process, files that they name, and programs.
struct EngineInputs {
  std::function<std::optional<std::string>(std::string_view name)> variable;
  std::function<Result<std::string>(const std::string& path)> read_file;
  std::function<bool(std::string_view name)> has_program;  // in $PATH
  // The output of a program that answers at once. Nothing: it fails, or there is none.
  std::function<std::optional<std::string>(const std::vector<std::string>& argv)> answer;
  // The names of all variables. Unset: none are known.
  std::function<std::vector<std::string>()> variable_names = {};
};

struct Allocation {
  std::string job;          // the engine's id of it, for people; may be empty
  std::vector<Host> hosts;  // each with its slots
  // The command that starts an agent on a host (launcher/transports/remote_command.h); empty: as
  // without an engine, by ssh.
  std::vector<std::string> starter;
  // The commands that start one on every host at once; none: the engine has none.
  std::optional<EngineStep> step = {};
  // The command that reports the job's state. It runs when a job fails in a way that the engine
  // could have caused. Empty: there is none.
  std::vector<std::string> question = {};
  // How elastic jobs learn which hosts the allocation has now. Nothing: it keeps those it has.
  std::optional<EngineWatch> watch = {};
  // The host that this process runs on, as the engine calls it. Empty: unknown, or none of them.
  std::string this_host = {};
  std::vector<int> gpus = {};  // of each host, as far as the engine was asked for some; else empty
  // This process runs inside of a step of the engine, which has these hosts and contains it.
  bool is_step = false;
  // The engine was not asked for slots: a number of ranks that the user names wins.
  bool slots_are_free = false;
  std::string unclear_slots = {};  // why the user has to; empty: those in `hosts` will do
};

// The output of a question's command, stdout and then stderr.
struct EngineAnswer {
  int exit_code = 0;
  std::string_view text;
};

// The output of a watch's command. An allocation that has ended has no hosts.
struct AllocationNow {
  std::vector<Host> hosts;  // each with its slots
  std::string ended;        // in the engine's words; empty: it has not
};

struct FailedHost {
  std::string name;
  std::string words;
};

// The interface of an engine to the rest of the launcher: the last thing in the engine's file. One
// line in CMakeLists.txt adds it (registry.h, docs/howto/add-engine.md).
struct EngineDescriptor {
  std::string_view name = {};   // --engine NAME
  std::string_view title = {};  // "Slurm"
  std::string_view from = {};   // where hosts and slots come from, for docs/reference/engines.md
  std::string_view how = {};    // how agents start, for people: "srun"
  // The variable without which this process is in no allocation of the engine.
  std::string_view mark = {};
  // Whether this process is inside of an allocation. nullptr: when `mark` is set.
  bool (*is_here)(const EngineInputs& inputs) = nullptr;
  // Errors (kUsage): the allocation cannot be read, or cannot be used; says what to do.
  Result<Allocation> (*find)(const EngineInputs& inputs,
                             const std::vector<std::string>& args) = nullptr;
  // Whether the job begins before all of its hosts are there, so that a name that does not resolve,
  // or a port where nothing listens, is waited for.
  bool hosts_come_late = false;
  // What its command says on stderr when it refuses a host for now, so that it is worth trying
  // again.
  std::string_view passing_refusal = {};
  // The hosts on which the engine cannot start anything, as its commands have said on stderr, each
  // with the line that says so. nullptr: unknown.
  std::vector<FailedHost> (*failed_hosts)(std::string_view said) = nullptr;
  // Among the stderr lines of the engine's commands, the one that says that the engine has ended
  // the job: cancelled, out of time, preempted, a node gone. Empty: none does. nullptr: unknown.
  std::string (*last_word)(std::string_view said) = nullptr;
  // The same of the answer to an allocation's question; `job` is the engine's id of it.
  std::string (*verdict)(std::string_view job, const EngineAnswer& answer) = nullptr;
  // Reads the output of an allocation's watch; `at_start` are the hosts that were found first.
  // Errors: it is not a list of hosts.
  Result<AllocationNow> (*hosts_now)(std::string_view printed, std::string_view job,
                                     const std::vector<Host>& at_start) = nullptr;
};

// Host lists in the forms that several engines use.

// The value of a variable; kUsage, with its name, when it is not set or empty.
Result<std::string> needed_variable(const EngineInputs& inputs, std::string_view name);

// The file that a variable names. kUsage: the variable is not set, or the file cannot be read.
Result<std::string> needed_file(const EngineInputs& inputs, std::string_view name);

// The parts between any of the separators, without empty ones.
std::vector<std::string> words_of(std::string_view text, std::string_view separators);

// A host for each word, or one slot more for a host that comes again: "n1 n1 n2" is n1:2,n2:1.
// `origin` names the source in errors. kUsage: there is no word, or one cannot be the name of a
// host.
Result<std::vector<Host>> count_hosts(std::string_view words, std::string_view origin);

// "n1 4 n2 2": n1:4,n2:2.
Result<std::vector<Host>> pair_hosts(std::string_view words, std::string_view origin);

// Where a user's cache is, which the hosts of an allocation share with this machine if they share
// home folders: "/home/me/.cache/hora". Empty: unknown.
std::string cache_folder(const EngineInputs& inputs);

// The name of the only host, on which the job's script runs then; empty: there are several.
std::string only_host(const std::vector<Host>& hosts);

// Slots for hosts of an allocation that has changed: a host has what it had, and a new one what the
// least of the others has.
void give_slots(std::vector<Host>& hosts, const std::vector<Host>& at_start);

// Slurm's counts by node, "4,2,1(x2)": 4, 2, 1, 1. kUsage: it is not one, or names more than
// `limit` nodes.
Result<std::vector<int>> expand_counts(std::string_view text, std::string_view origin,
                                       std::size_t limit);

}  // namespace hora::launcher
