// SPDX-License-Identifier: Apache-2.0
// Runs one job: connects the hosts, prepares and starts the ranks, carries their output, and obeys
// JobState until nothing is left. One event loop; this class holds what lives on it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/build/bundle.h"
#include "launcher/elastic/elastic_run.h"
#include "launcher/job/host_connector.h"
#include "launcher/job/host_link.h"
#include "launcher/job/job_rendezvous.h"
#include "launcher/job/job_state.h"
#include "launcher/job/orders.h"
#include "launcher/network/network_choice.h"
#include "launcher/output/console.h"
#include "launcher/output/job_streams.h"
#include "launcher/plan/chaos.h"
#include "launcher/plan/job_spec.h"
#include "launcher/plan/plan.h"
#include "launcher/plan/worker_environment.h"
#include "launcher/report/event_log.h"
#include "launcher/report/gpu_fault_text.h"
#include "launcher/report/hang_report.h"
#include "launcher/report/job_report.h"
#include "launcher/report/lost_records.h"
#include "launcher/startup/start_display.h"
#include "launcher/startup/timings.h"
#include "launcher/supervisor/signals.h"
#include "rendezvous/net/stream.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/process_end.h"

namespace hora::launcher {

class Supervisor {
 public:
  Supervisor(JobSpec spec, Installation installation, EnvironmentList environment);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Blocks until the job is over. Prints rank output, and at the end why it failed if it did.
  // Answers the launcher's exit code; the Error (kUsage: bad hosts) is for what failed before any
  // host was contacted.
  Result<int> run();

 private:
  struct HostRun {
    bool remote = false;
    std::unique_ptr<HostLink> link;
    std::optional<Hello> hello;
    std::optional<ProbeResult> probe;
    std::optional<Goodbye> goodbye;
    Milliseconds clock_offset{0};  // the launcher's wall clock minus the host's
    std::size_t shipped_bytes = 0;
    Stage progress = Stage::kRanks;         // of its ranks, once they run
    os::Clock::time_point told_slow_since;  // when that was last heard of which it was told
    bool seen_gone = false;                 // its process, at a heartbeat before
  };

  Status set_up();
  Status make_plan();
  void adopt(Plan plan);
  Status count_gpu_slots();
  void connect_hosts();
  // Answers whether the connection has begun; if not, the host has failed.
  bool connect_host(int host, os::Clock::time_point deadline);
  void on_stage(int host, Stage stage, std::string_view detail);

  // What agents say: in turn and within its limits, or it would not come here.
  void on(int host, Hello hello);
  void on(int host, ProbeResult result);
  void on(int host, AgentReady);
  void on(int host, const Started& started);
  void on(int host, const RankOutput& output);
  void on(int host, const RankOutputEnd& end);
  void on(int host, RankExit exit);
  void on(int host, const InputTaken& taken);
  void on(int host, const RankProgress& progress);
  void on(int host, StackReport report);
  void on(int host, GpuFault fault);
  void on(int host, AgentSuspended);
  void on(int host, const LogLine& line);
  void on(int host, Failure failure);
  void on(int host, Goodbye goodbye);
  void tell_placement(const std::string& note);
  void on_violation(int host, std::string what);
  void on_link_end(int host, std::string detail);

  void reach(int host, Stage stage, std::string_view detail = {});
  void feed(const Event& event);
  void perform(const Action& action);
  void prepare_all();
  void send_orders();
  // Before the clock of the start runs and any host is connected: packing a large file takes longer
  // than agents bear silence.
  Status pack_ship_files();
  Status send_ship_files();
  Status send_ship_files(const std::vector<int>& hosts);
  void start_all();
  void finish();
  void launch_failed(std::string_view code, const Error& error);

  void on_signal(int signal);
  Status watch_starter();
  void show_start();
  void suspend();
  void stop_myself();
  void beat();
  bool is_only_slow(int host, os::Clock::duration silence);
  void arm_deadline();
  std::vector<HostNetwork> host_networks() const;
  HostNetwork network_of_host(int host) const;
  HostNetwork own_network() const;
  void on_console_broken(int fd, int errnum);
  std::string name_of(int host) const;
  void say(std::string text);          // on standard error
  void tell(const std::string& text);  // a person; a program is told by an event
  void leave();
  void stop_waiting_for_readers(int signal);
  void lose(LostRecord record);
  void find_lost_records();
  int final_exit_code() const;
  void print_outcome();
  void write_report_of(const std::string& text);
  std::string job_end(const std::string& message) const;
  JobReport record(std::string text) const;
  void make_autopsy();

  // --chaos: supervisor_chaos.cpp.
  Status plan_chaos();
  void begin_chaos();
  void strike(const ChaosStep& step, os::Clock::time_point start);

  void watch_for_stall();

  // Elastic jobs: supervisor_elastic.cpp. There plan_ has a host per agent, in the order in which
  // they were connected, and a rank is the number of a process.
  void start_elastic();
  bool is_over() const { return state_->ending() || state_->done(); }
  Status watch_elastic_scopes();
  void feed_elastic(elastic::ElasticEvent event);
  void perform(const elastic::ElasticAction& action);
  void tell_elastic(const Event& event);
  void arm_elastic_deadline();
  void add_host(const Host& host);
  void prepare_epoch();
  std::variant<NetworkChoice, Failure> choose_epoch_network() const;
  Status open_epoch_rendezvous(const NetworkChoice& network);
  Status add_epoch_ranks();
  void send_epoch_orders(const NetworkChoice& network);
  void begin_epoch();
  void break_epoch();
  void notify_workers(elastic::PlanChange change);

  JobSpec spec_;
  Plan plan_;  // without ranks while a host's slots are open
  std::vector<Host>
      open_hosts_;  // --slots-per-host auto: slots are settled when agents have counted
  Installation installation_;
  EnvironmentList environment_;
  JobIdentity identity_;
  net::AcceptStream accept_stream_;  // of --rendezvous-tls

  std::unique_ptr<os::EventLoop> loop_;
  std::optional<Console> console_;
  std::unique_ptr<Signals> signals_;
  std::unique_ptr<os::ProcessEnd> starter_;  // of --end-with
  std::unique_ptr<HangReport> hang_report_;
  bool last_autopsy_made_ = false;       // that of --timeout
  std::unique_ptr<JobStreams> streams_;  // made with the plan
  std::unique_ptr<JobRendezvous> rendezvous_;
  std::unique_ptr<HostConnector> connector_;
  std::shared_ptr<const std::string> bundle_frames_;
  std::vector<std::shared_ptr<const std::string>> shipments_;  // of --ship
  Status packed_ = Ok{};                                       // told when they are to be sent
  std::optional<JobState> state_;
  std::vector<HostRun> hosts_;
  std::string board_at_timeout_;  // the table of hosts and stages
  os::Clock::time_point next_beat_;
  os::EventLoop::TimerId deadline_timer_ = 0;
  os::EventLoop::TimerId suspend_timer_ = 0;
  int hosts_to_probe_ = 0;  // of which an answer is still to come
  int hosts_to_suspend_ = 0;
  int hosts_to_start_ = 0;
  bool flushing_ = false;
  bool leaving_ = false;
  int exit_code_ = 0;
  int console_error_ = 0;       // errno of what nobody could write
  std::string broken_console_;  // "standard output"
  int gave_up_by_ = 0;          // the signal of a user who does not wait for readers
  std::vector<LostRecord> lost_;
  std::unique_ptr<elastic::ElasticRun> elastic_;
  std::vector<ChaosStep> chaos_steps_;
  std::vector<HostGpuFault> gpu_faults_;
  std::vector<ChaosStrike> chaos_strikes_;  // those that are done
  Timings timings_;
  StartDisplay display_;
  EventLog events_;
};

}  // namespace hora::launcher
