// SPDX-License-Identifier: Apache-2.0
// One job on this host, from the start of its ranks to the last process that they left behind.
//
//   prepared --start()--> running --ranks end--> sweeping --> draining --> finished
//                            |                      ^
//                            +---- terminate() -----+      (INT or HUP, grace,) TERM, grace, KILL
//
// This class holds the phases and their deadlines. RankSet has the ranks, StrayHunt the processes
// that are not ranks. Every wait has a deadline: what does not die within kKillTimeout of KILL is
// stuck in the kernel, or forks faster than it can be killed; it is listed as a survivor, and is
// not waited for. Single-threaded, on the agent's loop.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/agent/flight_records.h"
#include "launcher/agent/kernel_watch.h"
#include "launcher/agent/launcher_link.h"
#include "launcher/agent/pmi_server.h"
#include "launcher/agent/prepared_job.h"
#include "launcher/agent/rank_set.h"
#include "launcher/agent/stray_hunt.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class HostJob {
 public:
  HostJob(os::EventLoop& loop, LauncherLink& link, PreparedJob prepared, std::string mark);
  ~HostJob();
  HostJob(const HostJob&) = delete;
  HostJob& operator=(const HostJob&) = delete;

  // `on_finished` is called once, with the account of what was left.
  Status open(std::function<void(Goodbye)> on_finished);

  struct PmiEvents {
    std::function<void()> on_ready;              // the ranks can be started
    std::function<void(std::string)> on_note;    // for people
    std::function<void(std::string)> on_failed;  // once: it did not start, or ended too soon
  };
  // Starts the program that serves PMI, with its files in `directory`.
  Status serve_pmi(const std::string& directory, PmiEvents events);

  void start();
  bool started() const { return phase_ != Phase::kPrepared; }
  // TERM now, KILL after `grace`; before another `signal` than TERM, it gets as much time itself. A
  // later call can only shorten it.
  void terminate(Milliseconds grace, int signal);
  // The same for one rank; the others go on.
  void end_rank(int rank, Milliseconds grace);
  void signal_ranks(int signal) { ranks_.signal(signal); }
  void signal_rank(int rank, int signal) { ranks_.signal_rank(rank, signal); }
  void suspend();
  void resume();
  // The output has no reader any more.
  void launcher_gone();
  // SIGCHLD arrived.
  void on_child_ended();

  // The ranks that live, with their processes.
  std::vector<RankProcess> living_ranks() const { return ranks_.living(); }
  FlightRecords& flight_records() { return prepared_.flight_records(); }
  OutputPump& output() { return ranks_.output(); }
  InputFeeder& input() { return ranks_.input(); }
  const HostOrder& order() const { return prepared_.order(); }

 private:
  enum class Phase { kPrepared, kRunning, kSweeping, kDraining, kFinished };

  SparedProcesses spared() const;
  void watch_gpus();
  bool report_gpu_faults();
  void signal_everything(int signal);
  void kill_everything();
  void release_reserve();

  void advance();
  void end_running_ranks();
  void terminate_ranks(Milliseconds time_limit);
  void check_pmi_use();
  void begin_sweep();
  void sweep();
  void look_again(Milliseconds delay);
  void drain();
  void finish();

  os::EventLoop& loop_;
  LauncherLink& link_;
  PreparedJob prepared_;
  RankSet ranks_;
  StrayHunt strays_;
  ProgressReporter progress_;
  // Open descriptors that are closed for the end: without a free one no process can be found, and
  // none signalled.
  std::array<os::Fd, 2> reserve_;
  std::function<void(Goodbye)> on_finished_;
  GpuWatch gpus_;
  std::unique_ptr<PmiServer> pmi_;

  Phase phase_ = Phase::kPrepared;
  // Ending: set by terminate(), or by the sweep for processes that the ranks left behind.
  bool terminating_ = false;
  std::optional<Clock::time_point> ranks_term_at_;  // they have had another signal first
  std::optional<Clock::time_point> term_at_;        // strays get TERM then
  std::optional<Clock::time_point> kill_at_;
  std::optional<Clock::time_point> give_up_at_;
  struct {
    bool strays_termed = false;
    bool ranks_gone_reported = false;
  } once_;
  std::set<pid_t> termed_groups_;  // had their TERM when the job was ended
  os::EventLoop::TimerId timer_ = 0;
  std::array<os::EventLoop::TimerId, 2> later_{};  // what a short job is spared
  Milliseconds poll_delay_{2};
};

}  // namespace hora::launcher
