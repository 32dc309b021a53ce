// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/rank_set.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <deque>

#include "launcher/failures/failure_code.h"
#include "launcher/machine/host_facts.h"
#include "launcher/protocol/exit_code.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher {

namespace {

// The time between a rank's leaving the others and the end of its process: an interpreter tidies
// up.
constexpr std::chrono::seconds kEndsSoon{10};

std::int64_t microseconds(const timeval& time) {
  return std::int64_t{time.tv_sec} * 1'000'000 + time.tv_usec;
}

// Where ranks share a session, one may have joined another's group.
void signal_with_group(pid_t rank, int signal) {
  ::kill(-rank, signal);
  if (::getpgid(rank) != rank) ::kill(rank, signal);
}

}  // namespace

RankSet::RankSet(os::EventLoop& loop, LauncherLink& link, PreparedJob& prepared)
    : loop_(loop), link_(link), prepared_(prepared), output_(loop, link), input_(loop, link) {}

RankSet::~RankSet() {
  for (const auto timer : timers_) loop_.cancel(timer);
}

// --- start ---------------------------------------------------------------------------------------

void RankSet::start() {
  const HostOrder& order = prepared_.order();
  ranks_.reserve(order.ranks.size());
  Started started;
  started.notes = prepared_.notes();
  std::deque<Starting> starting;
  auto last_sign = Clock::now();
  const auto finish_first = [&] {
    finish_start(starting.front(), started);
    starting.pop_front();
    // On a busy machine each may take long: every new process has to wait for its turn. The
    // launcher must not take that for a lost host.
    if (Clock::now() - last_sign < Milliseconds(order.lease_ms) / 4) return;
    link_.send(Heartbeat{});
    link_.flush();
    last_sign = Clock::now();
  };
  // The first that began is the first that is waited for: the kernel has likely let it run first.
  for (const RankOrder& rank : order.ranks) {
    if (starting.size() == PreparedJob::kMostStarting) finish_first();
    starting.push_back({begin_rank(rank), prepared_.begin_start(rank)});
  }
  while (!starting.empty()) finish_first();
  link_.send(std::move(started));
}

RankSet::Rank& RankSet::begin_rank(const RankOrder& order) {
  Rank& rank = ranks_.emplace_back();  // there is room: references stay good
  rank.exit.rank = order.rank;
  return rank;
}

void RankSet::finish_start(Starting& starting, Started& started) {
  Rank& rank = starting.rank;
  const int number = rank.exit.rank;
  const auto fail = [&](RankExit exit) {
    rank.exit = std::move(exit);
    rank.exit.rank = number;
    rank.exit.clock_ns = wall_clock_ns();
  };
  if (auto* not_begun = std::get_if<RankExit>(&starting.begun)) return fail(std::move(*not_begun));
  auto result = prepared_.finish_start(*std::get<std::unique_ptr<StartingRank>>(starting.begun));
  if (auto* not_started = std::get_if<RankExit>(&result)) return fail(std::move(*not_started));
  auto& process = std::get<StartedRank>(result);
  rank.pid = process.pid;
  rank.alive = true;
  rank.ends = {std::move(process.stdout_write), std::move(process.stderr_write)};
  started.pids.emplace_back(number, rank.pid);
  // Without room for one more watched pipe the rank's output would be lost: end it instead.
  const bool watched =
      output_.add(number, OutputStream::kStdout, std::move(process.stdout_pipe)) &&
      (!process.stderr_pipe.valid() ||
       output_.add(number, OutputStream::kStderr, std::move(process.stderr_pipe))) &&
      (!process.stdin_pipe.valid() || input_.add(number, std::move(process.stdin_pipe)));
  if (!watched) {
    output_is_lost(rank, "its output cannot be watched, so it is killed");
    signal_with_group(rank.pid, SIGKILL);
  }
}

// --- end -----------------------------------------------------------------------------------------

bool RankSet::reap(pid_t pid, int status, const rusage& usage, rlim_t cpu_seconds) {
  const auto rank = std::find_if(ranks_.begin(), ranks_.end(),
                                 [pid](const Rank& r) { return r.alive && r.pid == pid; });
  if (rank == ranks_.end()) return false;
  take_exit(*rank, status, usage, cpu_seconds);
  return true;
}

void RankSet::take_exit(Rank& rank, int status, const rusage& usage, rlim_t cpu_seconds) {
  rank.alive = false;
  rank.ends = {};  // now its streams end, unless another process holds them
  rank.exit.clock_ns = wall_clock_ns();
  if (WIFSIGNALED(status)) {
    rank.exit.signal = WTERMSIG(status);
    rank.exit.core_dumped = WCOREDUMP(status);
  } else {
    rank.exit.exit_code = WEXITSTATUS(status);
  }
  if (rank.exit.signal == SIGKILL && rank.aborted_with) {
    rank.exit.signal = 0;
    rank.exit.exit_code = *rank.aborted_with;
  }
  rank.exit.terminated_by_us = rank.ended_by_us;
  rank.exit.max_rss_bytes = std::int64_t{usage.ru_maxrss} * 1024;
  rank.exit.user_time_us = microseconds(usage.ru_utime);
  rank.exit.system_time_us = microseconds(usage.ru_stime);
  if (rank.exit.signal == SIGKILL && !rank.ended_by_us) explain_kill(rank, cpu_seconds);
  if (WIFSIGNALED(status) || WEXITSTATUS(status) != 0) {
    rank.exit.last_operation = prepared_.flight_records().last_of(rank.exit.rank);
    // It failed when it left. The others fail because of that, and many a process ends faster.
    if (const auto ending = ending_for(rank.exit.rank)) rank.exit.clock_ns -= ending->count();
  }
  rank.exit.lost_record = prepared_.flight_records().lost_of(rank.exit.rank);
  rank.exit.counters = prepared_.flight_records().counters_of(rank.exit.rank);
  input_.close(rank.exit.rank);
}

// A KILL that was not sent from here is the kernel's, as a rule: for a limit, or for memory.
void RankSet::explain_kill(Rank& rank, rlim_t cpu_seconds) const {
  // The kernel counts by its clock's ticks here, and by the time that was used in the other figure.
  constexpr double kInexact = 0.25;
  const double used = static_cast<double>(rank.exit.user_time_us + rank.exit.system_time_us) / 1e6;
  if (cpu_seconds != RLIM_INFINITY && used + kInexact >= static_cast<double>(cpu_seconds)) {
    rank.exit.hint = "it had used up the " + std::to_string(cpu_seconds) +
                     " s of CPU time that its limit allows (ulimit -t)";
    return;
  }
  rank.exit.hint = oom_.verdict();
  if (!rank.exit.hint.empty()) rank.exit.code = failure::kOutOfMemory;
}

// For how long a rank has been about to end: since it left the others, unless it does something
// else now.
std::optional<std::chrono::nanoseconds> RankSet::ending_for(int rank) const {
  const auto left = prepared_.flight_records().left_for(rank);
  return left && *left <= kEndsSoon ? left : std::nullopt;
}

// A rank's streams have usually ended by the time it is reaped; when another process holds one
// open, kOutputEnd follows the exit.
void RankSet::report_exits(bool before_output) {
  for (Rank& rank : ranks_) {
    if (rank.alive || rank.reported) continue;
    // The last lines of a rank precede its exit, so that the launcher shows them first. If the
    // output has no reader, the exit is more urgent.
    if (!output_.drain(rank.exit.rank) && !before_output) continue;
    rank.reported = true;
    if (const auto loss = output_.loss_of(rank.exit.rank); !loss.empty()) {
      output_is_lost(rank, "some of its output is lost: " + loss);
    }
    const bool killed = rank.exit.signal == SIGKILL && !rank.ended_by_us;
    if (rank.output_lost && rank.exit.exit_code == 0 && (rank.exit.signal == 0 || killed)) {
      rank.exit.signal = 0;
      rank.exit.exit_code = kExitLauncher;
      rank.exit.code = failure::kOutput;
    }
    rank.exit.last_stderr = output_.last_stderr(rank.exit.rank);
    link_.send(rank.exit);
  }
}

void RankSet::output_is_lost(Rank& rank, const std::string& what) {
  constexpr int kError = 4;
  rank.output_lost = true;
  link_.log({kError, "rank " + std::to_string(rank.exit.rank) + ": " + what});
}

// --- living ranks ----------------------------------------------------------------------------

bool RankSet::any_alive() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.alive; });
}

bool RankSet::all_succeeded() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
    return !rank.alive && rank.exit.exit_code == 0 && rank.exit.signal == 0 && !rank.aborted_with;
  });
}

std::vector<RankProcess> RankSet::living() const {
  std::vector<RankProcess> found;
  for (const Rank& rank : ranks_) {
    if (rank.alive) found.push_back({rank.exit.rank, rank.pid});
  }
  return found;
}

std::vector<pid_t> RankSet::living_pids() const {
  std::vector<pid_t> found;
  for (const auto& [rank, pid] : living()) found.push_back(pid);
  return found;
}

std::vector<RankProcess> RankSet::started() const {
  std::vector<RankProcess> found;
  for (const Rank& rank : ranks_) {
    if (rank.pid > 0) found.push_back({rank.exit.rank, rank.pid});
  }
  return found;
}

// --- signals -------------------------------------------------------------------------------------

void RankSet::signal(int signal) const {
  for (const Rank& rank : ranks_) {
    if (rank.alive) signal_with_group(rank.pid, signal);
  }
}

void RankSet::signal_rank(int rank, int signal) const {
  for (const Rank& each : ranks_) {
    if (each.exit.rank == rank && each.alive) signal_with_group(each.pid, signal);
  }
}

std::set<pid_t> RankSet::terminate(int signal, Milliseconds time_limit) {
  std::set<pid_t> groups;
  bool some_end = false;
  for (Rank& rank : ranks_) {
    if (!rank.alive) continue;
    if (!rank.ended_by_us && ending_for(rank.exit.rank)) {
      some_end = true;
      continue;
    }
    send_end(rank, signal);
    groups.insert(rank.pid);
  }
  if (!some_end) return groups;
  timers_.push_back(loop_.call_after(time_limit, [this, signal] {
    for (Rank& rank : ranks_) {
      if (rank.alive && !rank.ended_by_us) send_end(rank, signal);
    }
  }));
  return groups;
}

void RankSet::send_end(Rank& rank, int signal) {
  rank.ended_by_us = true;
  signal_with_group(rank.pid, signal);
  signal_with_group(rank.pid, SIGCONT);  // a stopped one could not react
}

void RankSet::kill() {
  for (Rank& rank : ranks_) {
    if (!rank.alive) continue;
    rank.ended_by_us = true;
    signal_with_group(rank.pid, SIGKILL);
  }
}

void RankSet::end_rank(int rank, Milliseconds grace) {
  for (Rank& each : ranks_) {
    if (each.exit.rank != rank || !each.alive) continue;
    send_end(each, SIGTERM);
    timers_.push_back(loop_.call_after(grace, [this, rank] { signal_rank(rank, SIGKILL); }));
  }
}

void RankSet::abort_rank(int rank, int exit_code) {
  for (Rank& each : ranks_) {
    if (each.exit.rank != rank || !each.alive || each.ended_by_us) continue;
    each.aborted_with = exit_code;
    signal_with_group(each.pid, SIGKILL);
  }
}

}  // namespace hora::launcher
