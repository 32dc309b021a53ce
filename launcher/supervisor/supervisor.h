// SPDX-License-Identifier: Apache-2.0
// The loop of one job: what happens (to hosts, at the terminal, in time) becomes events of the job
// state, and what that decides is carried out by the parts: the fleet of agents, the run, the
// narrator, the fault injector.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launcher/fleet/fleet.h"
#include "launcher/job/job_state.h"
#include "launcher/job/orders.h"
#include "launcher/job/restart_policy.h"
#include "launcher/parts/bundle.h"
#include "launcher/parts/hashes.h"
#include "launcher/plan/job_spec.h"
#include "launcher/plan/worker_environment.h"
#include "launcher/process/signals.h"
#include "launcher/report/hang_report.h"
#include "launcher/report/narrator.h"
#include "launcher/runs/run.h"
#include "launcher/shipping/user_files.h"
#include "launcher/supervisor/fault_injector.h"
#include "launcher/supervisor/job_control.h"
#include "launcher/supervisor/suspension.h"
#include "rendezvous/net/stream.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/process_end.h"

namespace hora::launcher {

class Supervisor {
 public:
  using MakeRun = std::function<std::unique_ptr<Run>(RunContext context)>;

  // A static run, or an elastic one, as `spec` says.
  Supervisor(JobSpec spec, Installation installation, EnvironmentList environment);
  Supervisor(JobSpec spec, Installation installation, EnvironmentList environment,
             MakeRun make_run);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Before run(): what reaches the hosts, in place of `spec.transport`.
  void reach_hosts_by(MakeTransport make_remote) { owner_.make_remote = std::move(make_remote); }
  // Before run(): a source that knows whether the owner of the hosts has ended a job, and may wait
  // a moment for the answer. With a timeout of 0, nothing suggests that.
  using Explain = std::function<std::optional<Failure>(const Cause& cause, Milliseconds timeout)>;
  void explain_ends_by(Explain explain) { owner_.explain = std::move(explain); }

  // Blocks until the job is over. Prints rank output, and at the end why it failed if it did.
  // Returns the launcher's exit code; the Error (kUsage: bad hosts) is for what failed before any
  // host was contacted.
  Result<int> run();

  // A job that fails may be started again, as `policy` says. Before run().
  void use_restarts(RestartPolicy& policy) { restarts_ = &policy; }
  // After run(): the last signal by which the user has asked for the end; 0: none.
  int interrupted_by() const { return interrupted_by_; }
  // After run(): the hosts whose failures have ended the job before any rank ran.
  std::vector<std::string> unreached_hosts() const;
  // After run(): the job to start again; none: it is over.
  const std::optional<JobSpec>& next_attempt() const { return next_attempt_; }

 private:
  // The job as it was asked for, and what identifies it.
  struct Job {
    Job(JobSpec job_spec, Installation job_installation, EnvironmentList job_environment)
        : spec(std::move(job_spec)),
          installation(std::move(job_installation)),
          environment(std::move(job_environment)),
          ship_files(spec, launcher_memory_folder(environment)) {}

    JobSpec spec;
    Installation installation;
    EnvironmentList environment;
    ShipFiles ship_files;  // packed before the clock of the job starts
    JobIdentity identity;
    net::AcceptStream accept_stream;  // of --rendezvous-tls
  };
  // From the job's phase, as JobState::next_deadline() says.
  struct Deadline {
    os::EventLoop::TimerId timer = 0;
    std::uint64_t shipped = 0;   // Fleet::shipping() when the start was last given its time
    bool hang_reported = false;  // before --timeout ends the job
  };
  // The launcher's files at its end, and how it ends.
  struct Leaving {
    bool flushing = false;  // all ranks have ended
    bool begun = false;     // the outcome is being reported
    bool watches_reader = false;
    EndOfOutput output;
    std::string broken_console;  // "standard output"
    int exit_code = 0;
  };

  Status set_up();
  Status identify();
  RunContext run_context();
  JobState::Options state_options() const;
  Status watch_starter();
  Status accept_plan(const Plan& plan);
  void make_hang_report();
  void open_control();
  void watch_for_stall();

  // What the fleet reports: each event to the part that it is for.
  struct FleetEvents;

  // What happens to this process.
  void on_signal(int signal);
  void end_by_user(int signal);
  void on_console_broken(int fd, int errnum);
  void on_running();
  void arm_deadline();

  void feed(const Event& event);
  void launch_failed(std::string_view code, const Error& error);
  bool is_over() const { return state_->ending() || state_->done(); }

  void finish();
  void leave();
  void watch_reader(std::size_t written_before, Milliseconds idle);
  void stop_waiting_for_readers(int signal);
  void find_lost_records();
  void explain_end();
  void show_progress(const JobFigures& figures);
  Milliseconds ran() const;  // for which all ranks have run
  void decide_restart(EndedJob& ended);

  Job job_;
  MakeRun make_run_;
  struct {
    MakeTransport make_remote;
    Explain explain;
  } owner_;  // of the hosts
  std::unique_ptr<os::EventLoop> loop_;
  Narrator narrator_;
  std::unique_ptr<Signals> signals_;
  std::unique_ptr<os::ProcessEnd> starter_;  // of --end-with
  std::unique_ptr<HangReport> hang_report_;
  std::unique_ptr<Fleet> fleet_;
  std::unique_ptr<Suspension> suspension_;
  std::unique_ptr<Run> run_;
  std::unique_ptr<FaultInjector> faults_;  // of --chaos
  std::unique_ptr<JobControl> control_;    // none: of a job that only looks at caches
  std::optional<JobState> state_;
  Deadline deadline_;
  Leaving leaving_;
  RestartPolicy* restarts_ = nullptr;  // of --restarts
  std::optional<JobSpec> next_attempt_;
  std::optional<Clock::time_point> running_since_;
  int interrupted_by_ = 0;
};

}  // namespace hora::launcher
