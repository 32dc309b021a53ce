// The ranks of one job on this host, from their start to the last process that they left behind.
//
//   prepared --start()--> running --ranks end--> sweeping --> draining --> finished
//                            |                      ^
//                            +---- terminate() -----+      TERM, grace, KILL
//
// Single-threaded, on the agent's loop. Every wait has a deadline: what does not die within
// kKillPatience of KILL is stuck in the kernel, or forks faster than it can be killed; it is listed
// as a survivor, and is not waited for.
#pragma once

#include <sys/resource.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/agent/gpu_watch.h"
#include "launcher/agent/input_feeder.h"
#include "launcher/agent/launcher_link.h"
#include "launcher/agent/oom_watch.h"
#include "launcher/agent/output_pump.h"
#include "launcher/agent/pmi_server.h"
#include "launcher/agent/prepared_job.h"
#include "launcher/process/strays.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class HostJob {
 public:
  using Milliseconds = std::chrono::milliseconds;

  HostJob(os::EventLoop& loop, LauncherLink& link, PreparedJob prepared, std::string mark);
  ~HostJob();
  HostJob(const HostJob&) = delete;
  HostJob& operator=(const HostJob&) = delete;

  // `on_finished` is called once, with the account of what was left.
  Status open(std::function<void(Goodbye)> on_finished);

  // Starts the program that serves PMI, with its files in `directory`, and tells when the ranks can
  // be started, and what it has to say to people. What goes wrong with it, then or later, is told
  // once.
  Status serve_pmi(const std::string& directory, std::function<void()> on_ready,
                   std::function<void(std::string)> on_note,
                   std::function<void(std::string)> on_failed);

  void start();
  bool started() const { return phase_ != Phase::kPrepared; }
  // TERM now, KILL after `grace`; a later call can only shorten it.
  void terminate(Milliseconds grace);
  // The same for one rank; the others go on.
  void end_rank(int rank, Milliseconds grace);
  void signal_ranks(int signal);
  void signal_rank(int rank, int signal);
  void suspend();
  void resume();
  // Nobody reads any more.
  void launcher_gone();
  // SIGCHLD arrived.
  void on_child_ended();

  // The ranks that live, with their processes.
  std::vector<std::pair<int, pid_t>> living_ranks() const;

  FlightRecords& flight_records() { return prepared_.flight_records(); }
  OutputPump& output() { return output_; }
  InputFeeder& input() { return input_; }
  const HostOrder& order() const { return prepared_.order(); }

 private:
  enum class Phase { kPrepared, kRunning, kSweeping, kDraining, kFinished };

  struct Rank {
    RankExit exit;
    pid_t pid = -1;
    bool alive = false;     // not reaped yet, so its pid is surely its own
    bool reported = false;  // kExit is sent
    bool ended_by_us = false;
    bool output_lost = false;         // it cannot have succeeded, whatever it thinks
    std::optional<int> aborted_with;  // it asked to be ended, and to have this exit code
  };

  void start_rank(const RankOrder& order, Started& started);
  void abort_rank(int number, int exit_code);
  void take_exit(Rank& rank, int status, const ::rusage& usage);
  void report_exits();
  bool tell_gpu_faults();
  void output_is_lost(Rank& rank, const std::string& what);
  bool any_alive() const;

  void signal_groups(int signal);
  void signal_everything(int signal);
  void kill_everything();
  void chase();

  void advance();
  void begin_sweep();
  void sweep();
  void sweep_again(Milliseconds delay);
  void drain();
  void finish();
  void list_survivors(const std::vector<ProcessEntry>& left);
  std::optional<std::vector<pid_t>> children_but_ranks() const;
  bool only_ranks_are_left() const;
  std::vector<ProcessEntry> strays() const;
  void remember_killed(const std::vector<ProcessEntry>& strays);

  os::EventLoop& loop_;
  LauncherLink& link_;
  PreparedJob prepared_;
  StrayScope scope_;
  std::array<os::Fd, 2>
      for_the_end_;  // without a descriptor nobody is found, and none is signalled
  OutputPump output_;
  InputFeeder input_;
  std::function<void(Goodbye)> on_finished_;

  Phase phase_ = Phase::kPrepared;
  OomWatch oom_;
  GpuWatch gpus_;
  std::unique_ptr<PmiServer> pmi_;
  std::vector<Rank> ranks_;
  std::set<pid_t> termed_groups_;  // had their TERM when the job was told to end

  // Ending: set by terminate(), or by the sweep for what the ranks left behind.
  bool terminating_ = false;
  std::optional<os::Clock::time_point> term_at_;  // strays get TERM then
  std::optional<os::Clock::time_point> kill_at_;
  std::optional<os::Clock::time_point> give_up_at_;
  bool strays_termed_ = false;
  os::EventLoop::TimerId timer_ = 0;
  std::vector<os::EventLoop::TimerId> rank_timers_;  // of end_rank()
  Milliseconds poll_delay_{2};
  bool caught_up_ = true;   // nobody forks faster than we kill
  bool uncounted_ = false;  // somebody survives who could not even be listed
  std::set<std::pair<pid_t, std::uint64_t>> killed_;
  std::vector<std::int64_t> survivors_;
};

}  // namespace hora::launcher
