// SPDX-License-Identifier: Apache-2.0
#include "launcher/report/outcome_text.h"

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "launcher/failures/failure_code.h"
#include "launcher/failures/host_failure.h"
#include "launcher/failures/rank_exit_text.h"
#include "launcher/plan/plan.h"
#include "launcher/report/advice.h"
#include "launcher/report/resource_usage.h"
#include "launcher/report/secrets.h"
#include "launcher/text/text.h"
#include "launcher/text/user_input.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// Python marks by lines of carets what is wrong in the line above. Among the few lines that are
// shown they would push out the user's own.
bool is_marker(std::string_view line) {
  return line.find_first_not_of(" ^~") == std::string_view::npos;
}

// The frames of a Python traceback, without those inside of Hora's packages, which have two lines
// each: the caller's own is above seven of them.
std::vector<std::string_view> without_own_frames(const std::vector<std::string_view>& lines) {
  std::vector<std::string_view> out;
  bool is_own = false;
  for (const std::string_view line : lines) {
    is_own = continues_own_frame(line, is_own);
    if (!is_own) out.push_back(line);
  }
  return out;
}

// At most the last ten lines, indented.
std::string quoted_tail(std::string text) {
  std::replace(text.begin(), text.end(), '\r', '\n');
  std::vector<std::string_view> lines;
  const std::string shown = visible(text);
  for (const std::string_view line : split(shown, '\n')) {
    if (!is_marker(line)) lines.push_back(line);
  }
  constexpr std::size_t kShown = 10;
  if (lines.size() > kShown) lines = without_own_frames(lines);
  std::string out;
  for (std::size_t i = lines.size() > kShown ? lines.size() - kShown : 0; i < lines.size(); ++i) {
    out += "    " + std::string(lines[i]) + "\n";
  }
  return out;
}

// Whether the rank died of what --chaos sent it: then there is no other cause to look for.
bool is_chaos(const RankExit& exit, const std::vector<ChaosStrike>& chaos) {
  return std::any_of(chaos.begin(), chaos.end(), [&exit](const ChaosStrike& strike) {
    return strike.sent && strike.rank == exit.rank && exit.signal == strike.signal;
  });
}

// A failure under --chaos is seen in its light, whichever rank, host or limit it shows itself by.
std::string chaos_text(const std::vector<ChaosStrike>& chaos) {
  if (chaos.empty()) return {};
  constexpr std::size_t kShown = 10;
  std::string text = "  what --chaos had done by then:\n";
  for (std::size_t i = 0; i < std::min(chaos.size(), kShown); ++i) {
    text += "    " + strike_text(chaos[i]) + "\n";
  }
  if (chaos.size() > kShown) {
    text += "    and " + std::to_string(chaos.size() - kShown) + " more\n";
  }
  return text;
}

// Of signals that the kernel sends to a process above a limit.
const char* limit_of(int signal) {
  if (signal == SIGXFSZ) return "a file would have become larger than its limit allows (ulimit -f)";
  if (signal == SIGXCPU) return "it had used up the CPU time that its limit allows (ulimit -t)";
  return nullptr;
}

bool is_here(int host, const OutcomeContext& context) {
  const auto index = static_cast<std::size_t>(host);
  return host >= 0 && index < context.local.size() && context.local[index];
}

// To send a file along helps only where another machine has it.
std::string hint_text(const StderrHint& hint, bool is_here) {
  if (is_here && hint.id == "python-file") {
    return "  what it means: there is no such script on this machine\n"
           "  what to do: check its name, and the directory ('ls')\n";
  }
  return "  what it means: " + std::string(hint.meaning) +
         "\n  what to do: " + std::string(hint.fix) + "\n";
}

// Ranks have waited in init for others, some of which have ended as if all were well: their program
// does not join the job, or it is not there. Empty: they have not.
std::string hint_of_who_ended(const StderrHint& hint, const std::map<int, RankExit>& exits,
                              const OutcomeContext& context) {
  if (hint.id != "init-waits") return {};
  std::vector<int> ended;
  for (const auto& [rank, exit] : exits) {
    if (!failed(exit)) ended.push_back(rank);
  }
  if (ended.empty()) return {};
  const std::string who = (ended.size() == 1 ? "rank " : "ranks ") + number_ranges(ended);
  std::string text = "  what it means: " + who +
                     " had ended with code 0, while others waited in init()\n"
                     "  what to do: every program of a job has to call init()";
  if (context.only_rank_0_has_stdin) {
    text +=
        "; one that comes by standard input (python3 - < FILE) comes to rank 0 alone, and to all "
        "with --stdin all";
  }
  return text + "\n";
}

bool has_traceback(const RankExit& exit) {
  return exit.last_stderr.find("Traceback") != std::string::npos;
}

bool follows_another(const RankExit& exit) { return rank_that_left(exit.last_stderr).has_value(); }

// The rank that this one only follows: it ended as if all were well while others waited for it, or
// its traceback says what happened, though we ended it before its program could. Else nothing.
const RankExit* rank_before(const RankExit& exit, const std::map<int, RankExit>& exits) {
  const auto left = exits.find(rank_that_left(exit.last_stderr).value_or(-1));
  if (left == exits.end() || left->first == exit.rank) return nullptr;
  const bool is_it =
      !failed(left->second) || (has_traceback(left->second) && !follows_another(left->second));
  return is_it ? &left->second : nullptr;
}

std::string rank_name(int rank, const std::vector<HostPlan>& hosts, const OutcomeContext& context) {
  std::string name = "rank " + std::to_string(rank);
  for (const HostPlan& host : hosts) {
    const bool is_there =
        std::ranges::any_of(host.slots, [rank](const Slot& slot) { return slot.rank == rank; });
    if (is_there) name += " on " + host.host.name;
  }
  return name + program_label(context.programs, rank);
}

std::string rank_cause(const Cause& cause, const JobOutcome& outcome,
                       const std::vector<HostPlan>& hosts, const OutcomeContext& context) {
  const RankExit* const before = rank_before(cause.exit, outcome.exits);
  const bool is_reported = before != nullptr && failed(*before);  // by its traceback
  std::string text;
  if (before != nullptr) {
    text = rank_name(before->rank, hosts, context) +
           (is_reported ? " failed first; " : " left first, with exit code 0; ");
  }
  text += "rank " + std::to_string(cause.exit.rank) + " on " +
          planned_host_name(hosts, cause.host) + program_label(context.programs, cause.exit.rank) +
          " " + how_it_ended(cause.exit) + (before == nullptr ? "\n" : " because of it\n");
  if (is_chaos(cause.exit, context.chaos)) {
    text += "  --chaos sent it that signal\n";
  } else if (!cause.exit.hint.empty()) {
    const std::string code = cause.exit.code.empty() ? "" : " [" + cause.exit.code + "]";
    text += "  " + cause.exit.hint + code + "\n";
  } else if (const char* limit = limit_of(cause.exit.signal)) {
    text += std::string("  ") + limit + "\n";
  } else if (cause.exit.signal == SIGKILL) {
    text +=
        "  horarun did not send that signal; the kernel's out-of-memory killer may have (see dmesg "
        "on that host)\n";
  }
  if (cause.exit.stage != SpawnStage::kNone) {
    const bool has_it = !cause.exit.program.empty() && context.has_file(cause.exit.program);
    text += start_advice(cause.exit, has_it);
  }
  if (!cause.exit.last_operation.empty()) text += "  it " + cause.exit.last_operation + "\n";
  const RankExit& reported = is_reported ? *before : cause.exit;
  const std::string tail = quoted_tail(reported.last_stderr);
  const std::string whose = before == nullptr
                                ? "its last lines"
                                : "the last lines of rank " + std::to_string(reported.rank);
  const bool on_terminal = context.rank_0_has_terminal && reported.rank == 0;
  if (!tail.empty()) {
    text += "  " + whose + (on_terminal ? " on its terminal (--pty):\n" : " on stderr:\n") + tail;
  }
  const StderrHint* const hint = find_stderr_hint(reported.last_stderr);
  if (hint != nullptr) {
    const std::string who_ended = hint_of_who_ended(*hint, outcome.exits, context);
    text += who_ended.empty() ? hint_text(*hint, is_here(cause.host, context)) : who_ended;
  }
  if (cause.exit.max_rss_bytes > 0) {
    char used[96];
    std::snprintf(used, sizeof used, "  it used at most %s of memory and %.1f s of CPU time\n",
                  bytes_text(cause.exit.max_rss_bytes).c_str(),
                  static_cast<double>(cause.exit.user_time_us + cause.exit.system_time_us) / 1e6);
    text += used;
  }
  return text;
}

std::string failure_text(const Failure& failure) {
  std::string text = visible(failure.message) + " [" + failure.code + "]\n";
  if (!failure.advice.empty()) text += "  " + visible(failure.advice) + "\n";
  return text;
}

// A transport's name for the host holds the address that it tried. It comes through the same stream
// as the words of a host that may lie, so it counts only as an addition to the name that we know.
std::string subject_of(const Failure& failure, const std::string& host) {
  std::string name = "host " + host;
  const bool adds = failure.subject.compare(0, name.size() + 2, name + " (") == 0;
  return adds ? visible_line(failure.subject) : name;
}

// What looks like a line of ours may be a host's own word: every line of it stands under its name.
std::string host_failure_text(const Failure& failure, const std::string& host) {
  const std::string words = failure_text(failure);
  std::string text = subject_of(failure, host) + ": ";
  bool first = true;
  for (const std::string_view line : split(trim(words), '\n')) {
    const bool indented = first || line.substr(0, 2) == "  ";
    text += (indented ? "" : "  ") + std::string(line) + "\n";
    first = false;
  }
  return text;
}

// The command by which a user can see the same.
std::string proof_text(const Cause& cause, const std::vector<HostPlan>& hosts,
                       const OutcomeContext& context) {
  const FailureClass* row = find_failure_class(cause.failure.code);
  if (row == nullptr || row->proof.empty() || cause.host < 0 ||
      cause.host >= static_cast<int>(hosts.size())) {
    return {};
  }
  const Host& host = hosts[static_cast<std::size_t>(cause.host)].host;
  const bool is_local = is_here(cause.host, context);
  // Without a connection to the host, its user can still be given the command to type there.
  const bool is_out_of_reach = !is_local && context.reach.empty();
  if (is_out_of_reach && !runs_on_host(row->proof)) return {};
  std::string command = is_local || is_out_of_reach ? fill_local_command(row->proof, host)
                                                    : fill_command(row->proof, context.reach, host);
  constexpr std::string_view kLook = "'ls -ld DIR'";
  const std::size_t at = command.find(kLook);
  if (at != std::string::npos && !context.working_directory.empty()) {
    const std::string look = "ls -ld " + quote_shell_words({context.working_directory});
    command.replace(at, kLook.size(), quote_shell_words({look}));
  }
  if ((is_local || is_out_of_reach) && !context.working_directory.empty()) {
    constexpr std::string_view kLookHere = "ls -ld DIR";
    if (command == kLookHere) command = "ls -ld " + quote_shell_words({context.working_directory});
  }
  return (is_out_of_reach ? "  try on " + visible(host.name) + ": " : "  try: ") +
         visible(command) + "\n";
}

// "b:2222" may have been meant as a port.
std::string port_note(const Cause& cause, const std::vector<HostPlan>& hosts) {
  if (cause.failure.code.find("CONNECT") == std::string::npos || cause.host < 0) return {};
  const Host& host = hosts[static_cast<std::size_t>(cause.host)].host;
  const int slots = host.slots.value_or(0);
  if (slots != 22 && slots < 1024) return {};
  return "  " + host.name + ":" + std::to_string(slots) + " means " + std::to_string(slots) +
         " slots; a host with a port is written " +
         format_host({host.name, host.user, {}, {}, std::min(slots, 65'535)}) + "\n";
}

std::string cause_text(const JobOutcome& outcome, const std::vector<HostPlan>& hosts,
                       const OutcomeContext& context) {
  const Cause& cause = *outcome.cause;
  switch (cause.kind) {
    case Cause::Kind::kRank:
      return rank_cause(cause, outcome, hosts, context);
    case Cause::Kind::kHost:
      return host_failure_text(cause.failure, planned_host_name(hosts, cause.host)) +
             proof_text(cause, hosts, context) + port_note(cause, hosts) + context.start_table;
    case Cause::Kind::kLaunch:
      // As where a mistake is found before the job begins.
      return (cause.failure.code == failure::kUsage ? "error: " : "") + failure_text(cause.failure);
    case Cause::Kind::kTimeout:
      return failure_text(cause.failure) + context.start_table;
    case Cause::Kind::kSignal:
      return "ended by " + signal_name(cause.signal) + " to the launcher" +
             (cause.signal == SIGXCPU ? ": a limit of CPU time (ulimit -t, or the batch system's)"
                                      : "") +
             "\n";
    case Cause::Kind::kOutputClosed:
      return "the reader of the launcher's output has gone; the job was ended\n";
  }
  return {};
}

bool is_same_start(const RankExit& exit, const RankExit& first) {
  return exit.stage != SpawnStage::kNone && exit.code == first.code;
}

// Next to the host of the rank that is named.
std::vector<std::string> hosts_that_start_as_badly(const JobOutcome& outcome,
                                                   const std::vector<HostPlan>& hosts) {
  std::vector<std::string> names;
  for (const HostPlan& host : hosts) {
    const bool is_alike = std::ranges::any_of(host.slots, [&outcome](const Slot& slot) {
      const auto exit = outcome.exits.find(slot.rank);
      return exit != outcome.exits.end() && is_same_start(exit->second, outcome.cause->exit);
    });
    if (is_alike && host.index != outcome.cause->host) names.push_back(host.host.name);
  }
  return names;
}

// The advice for a class of failures is given once, and a list of ten thousand stays readable.
std::string unreached_text(const JobOutcome& outcome, const std::vector<HostPlan>& hosts,
                           const OutcomeContext& context) {
  constexpr int kShown = 10;
  int shown = 0;
  std::set<std::string> advised{outcome.cause->failure.code};
  std::string text;
  std::vector<std::string> rest;
  for (const Cause& each : outcome.unreached) {
    const std::string name = planned_host_name(hosts, each.host);
    if (++shown > kShown) {
      rest.push_back(name);
      continue;
    }
    Failure failure = each.failure;
    const bool is_new = advised.insert(failure.code).second;
    if (!is_new) failure.advice.clear();
    text += host_failure_text(failure, name);
    if (is_new) text += proof_text(each, hosts, context);
  }
  if (!rest.empty()) text += "also failed: " + few_names(rest) + "\n";
  std::vector<std::string> unanswered;
  for (const int host : outcome.unanswered) {
    unanswered.push_back(planned_host_name(hosts, host));
  }
  if (!unanswered.empty()) text += "not waited for any longer: " + few_names(unanswered) + "\n";
  return text;
}

std::string followers_text(const std::vector<int>& followers, const RankExit& first) {
  if (followers.empty()) return {};
  std::string text = exit_table({{first.rank, first}});
  text.pop_back();
  return text + (followers.size() == 1 ? "; rank " : "; ranks ") + number_ranges(followers) +
         " failed because of it\n";
}

// Other failures are mostly consequences: a line or two for all of them.
std::string collateral_text(const JobOutcome& outcome, const std::vector<HostPlan>& hosts) {
  if (outcome.elastic) return {};  // reported when it happened
  int also_failed = 0;
  int terminated = 0;
  std::vector<int> followers;
  const bool rank_cause = outcome.cause->kind == Cause::Kind::kRank;
  for (const auto& [rank, exit] : outcome.exits) {
    if (rank_cause && rank == outcome.cause->exit.rank) continue;
    // What cannot be started cannot be started by any rank of its host: the first one has said it.
    const bool is_the_same = rank_cause && is_same_start(exit, outcome.cause->exit);
    if (rank_cause && failed(exit) && follows_another(exit)) {
      followers.push_back(rank);
    } else if (exit.terminated_by_us) {
      ++terminated;
    } else if (failed(exit) && !is_the_same) {
      ++also_failed;
    }
  }
  std::string text;
  const auto others =
      rank_cause ? hosts_that_start_as_badly(outcome, hosts) : std::vector<std::string>();
  if (!others.empty()) {
    text += std::string("  the same: ") + (others.size() == 1 ? "host " : "hosts ") +
            few_names(others) + "\n";
  }
  text += followers_text(followers, outcome.cause->exit);
  if (also_failed > 0) {
    text += "  " + counted(also_failed, "other rank") + " failed after it\n";
    std::map<int, RankExit> rest = outcome.exits;
    for (const int rank : followers) rest.erase(rank);
    text += exit_table(rest);
  }
  if (terminated > 0) {
    text +=
        "  " + counted(terminated, "rank") + (terminated == 1 ? " was" : " were") + " terminated\n";
  }
  return text;
}

// One line, however many they are: where the launcher's own link is cut, all hosts are among them.
std::string unconfirmed_text(const JobOutcome& outcome, const std::vector<HostPlan>& hosts) {
  std::string text;
  std::vector<std::string> others;
  for (const int host : outcome.unconfirmed_hosts) {
    if (outcome.cause && outcome.cause->kind == Cause::Kind::kHost && outcome.cause->host == host) {
      text += "  its ranks end by themselves within --lease\n";
    } else {
      others.push_back(planned_host_name(hosts, host));
    }
  }
  if (others.size() == 1) {
    text += "host " + others[0] +
            " did not confirm that its ranks have ended; they end by themselves within --lease\n";
  } else if (!others.empty()) {
    text += "hosts " + few_names(others) +
            " did not confirm that their ranks have ended; they end with their agents' leases\n";
  }
  return text;
}

// Enough for an interpreter, its option and the script.
constexpr std::size_t kWords = 3;
constexpr std::size_t kBytes = 100;

}  // namespace

int rank_reported_first(const RankExit& cause, const std::map<int, RankExit>& exits) {
  const RankExit* const before = rank_before(cause, exits);
  return before != nullptr && failed(*before) ? before->rank : cause.rank;
}

std::string strike_text(const ChaosStrike& strike) {
  char time[32];
  std::snprintf(time, sizeof time, " (%.1f s)", static_cast<double>(strike.at.count()) / 1000);
  const std::string signal = signal_name(strike.signal);
  return "rank " + std::to_string(strike.rank) + " on " + strike.host +
         (strike.sent ? ": " + signal : " was gone: no " + signal) + time;
}

std::string describe_outcome(const JobOutcome& outcome, const std::vector<HostPlan>& hosts,
                             const OutcomeContext& context) {
  std::string text;
  if (outcome.cause) {
    text += cause_text(outcome, hosts, context);
    text += unreached_text(outcome, hosts, context);
    text += gpu_fault_report(context.gpu_faults);
    text += collateral_text(outcome, hosts);
    text += chaos_text(context.chaos);
  }
  text += unconfirmed_text(outcome, hosts);
  for (const auto& [host, goodbye] : outcome.goodbyes) {
    if (goodbye.survivors == 0) continue;
    text += "host " + planned_host_name(hosts, host) + ": " +
            counted(goodbye.survivors, "process") + " of the job could not be ended";
    if (!goodbye.survivor_pids.empty()) text += ":";
    for (const std::int64_t pid : goodbye.survivor_pids) text += " " + std::to_string(pid);
    const auto named = static_cast<int>(goodbye.survivor_pids.size());
    if (named > 0 && named < goodbye.survivors) {
      text += " and " + std::to_string(goodbye.survivors - named) + " more";
    }
    if (goodbye.forking) text += " (they fork and exit faster than they can be killed)";
    text += "\n";
  }
  return text;
}

std::string program_label(const std::vector<Program>& programs, int rank) {
  if (programs.empty()) return {};
  auto words = without_secrets(programs[program_of_rank(programs, rank)].command);
  const bool is_cut = words.size() > kWords;
  if (is_cut) words.resize(kWords);
  return " (" + shortened(visible_line(quote_shell_words(words)), kBytes) +
         (is_cut ? " ...)" : ")");
}

}  // namespace hora::launcher
