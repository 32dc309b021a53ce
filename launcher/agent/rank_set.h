// SPDX-License-Identifier: Apache-2.0
// The ranks of one job on this host: their processes and streams, and how each of them ended. A
// rank leads its own process group, and a session where they do not share one. Its pid cannot be
// reused before it is reaped, and only this class reaps it (by reap(), for the owner waits for all
// children). Its exit goes to the launcher once, after all output of the rank itself.
// Single-threaded, on the agent's loop.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "launcher/agent/input_feeder.h"
#include "launcher/agent/kernel_watch.h"
#include "launcher/agent/launcher_link.h"
#include "launcher/agent/output_pump.h"
#include "launcher/agent/prepared_job.h"
#include "launcher/agent/rank_processes.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class RankSet {
 public:
  // Borrows all three.
  RankSet(os::EventLoop& loop, LauncherLink& link, PreparedJob& prepared);
  ~RankSet();
  RankSet(const RankSet&) = delete;
  RankSet& operator=(const RankSet&) = delete;

  Status open(std::size_t output_window) { return output_.open(output_window); }
  // Starts every rank of the order and sends kStarted. What could not be started has ended.
  void start();

  // From now on the ends of ranks that the kernel kills for lack of memory are explained.
  void watch_memory() { oom_.begin(); }

  // A child of this process has ended. `cpu_limit`, in seconds, is what the kernel allowed it
  // (RLIM_INFINITY: any). False: it is not a rank.
  bool reap(pid_t pid, int status, const ::rusage& usage, ::rlim_t cpu_seconds);
  // Sends the exits that are due: of ranks whose output has been sent, or of all that have ended.
  void report_exits(bool before_output = false);

  bool any_alive() const;
  bool all_succeeded() const;
  std::vector<RankProcess> living() const;
  std::vector<pid_t> living_pids() const;
  // Ranks that have ended are included.
  std::vector<RankProcess> started() const;

  // To the groups of all living ranks, or of one.
  void signal(int signal) const;
  void signal_rank(int rank, int signal) const;
  // INT, HUP or TERM to all. What ends from now on was ended by us. Returns the groups that had it.
  // A rank that is about to end by itself has it after `time_limit`: it may be why the others have
  // failed.
  std::set<pid_t> terminate(int signal, Milliseconds time_limit);
  void kill();
  // TERM to one rank, KILL after `grace`; the others go on.
  void end_rank(int rank, Milliseconds grace);
  // KILL, for a rank that asked for it by PMI; it counts as ended with this exit code.
  void abort_rank(int rank, int exit_code);

  OutputPump& output() { return output_; }
  InputFeeder& input() { return input_; }

 private:
  struct Rank {
    RankExit exit;
    pid_t pid = -1;
    bool alive = false;     // not reaped yet, so its pid is surely its own
    bool reported = false;  // kExit is sent
    bool ended_by_us = false;
    bool output_lost = false;         // it cannot have succeeded, whatever it thinks
    std::optional<int> aborted_with;  // it asked to be ended, and to have this exit code
    std::array<os::Fd, 2> ends;       // StartedRank::stdout_write, stderr_write
  };

  struct Starting {
    Rank& rank;
    std::variant<std::unique_ptr<StartingRank>, RankExit> begun;
  };

  Rank& begin_rank(const RankOrder& order);
  void finish_start(Starting& starting, Started& started);
  void take_exit(Rank& rank, int status, const ::rusage& usage, ::rlim_t cpu_seconds);
  void explain_kill(Rank& rank, ::rlim_t cpu_seconds) const;
  std::optional<std::chrono::nanoseconds> ending_for(int rank) const;
  void send_end(Rank& rank, int signal);
  void output_is_lost(Rank& rank, const std::string& what);

  os::EventLoop& loop_;
  LauncherLink& link_;
  PreparedJob& prepared_;
  OutputPump output_;
  InputFeeder input_;
  OomWatch oom_;
  std::vector<Rank> ranks_;
  std::vector<os::EventLoop::TimerId> timers_;  // of end_rank() and terminate()
};

}  // namespace hora::launcher
