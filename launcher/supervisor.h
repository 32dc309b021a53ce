// Runs one job: connects the hosts, prepares and starts the ranks, carries their output, and obeys
// JobState until nothing is left. One event loop; this class holds what lives on it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/autopsy.h"
#include "launcher/bundle.h"
#include "launcher/event_log.h"
#include "launcher/host_connector.h"
#include "launcher/host_link.h"
#include "launcher/job_report.h"
#include "launcher/job_rendezvous.h"
#include "launcher/job_spec.h"
#include "launcher/job_state.h"
#include "launcher/job_streams.h"
#include "launcher/network_choice.h"
#include "launcher/orders.h"
#include "launcher/plan.h"
#include "launcher/signals.h"
#include "launcher/start_display.h"
#include "launcher/timings.h"
#include "launcher/worker_environment.h"
#include "rendezvous/os/event_loop.h"

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
  };

  Status set_up();
  Status make_plan();
  void adopt(Plan plan);
  Status count_gpu_slots();
  void connect_hosts();
  void on_stage(int host, Stage stage, std::string_view detail);

  // One for each frame type that needs more than a line.
  void on_frame(int host, Frame frame);
  void check(int host, const Status& status);
  void on_hello(int host, const std::string& payload);
  void on_probe_result(int host, const std::string& payload);
  void on_started(int host, const std::string& payload);
  void on_exit(int host, const std::string& payload);
  void on_agent_failure(int host, const std::string& payload);
  void on_goodbye(int host, const std::string& payload);
  void on_link_end(int host, std::string detail);
  void protocol_error(int host, const Error& error);

  void reach(int host, Stage stage, std::string_view detail = {});
  void feed(const Event& event);
  void perform(const Action& action);
  void prepare_all();
  void send_orders();
  Status send_ship_files();
  void start_all();
  void finish();
  void launch_failed(std::string_view code, const Error& error);

  void on_signal(int signal);
  void suspend();
  void on_suspended(int host);
  void stop_myself();
  void beat();
  void arm_deadline();
  std::vector<HostNetwork> host_networks() const;
  HostNetwork own_network() const;
  void on_stdout_broken(int errnum);
  std::string name_of(int host) const;
  void print_outcome();
  JobReport record(std::string text) const;
  int lost_output_code() const;
  void make_autopsy();
  void watch_for_stall();

  JobSpec spec_;
  Plan plan_;  // without ranks while a host's slots are open
  std::vector<Host>
      open_hosts_;  // --slots-per-host auto: slots are settled when agents have counted
  Installation installation_;
  EnvironmentList environment_;
  JobIdentity identity_;

  std::unique_ptr<os::EventLoop> loop_;
  std::unique_ptr<Signals> signals_;
  std::unique_ptr<Autopsy> autopsy_;
  bool last_autopsy_made_ = false;  // that of --timeout
  std::unique_ptr<JobStreams> streams_;  // made with the plan
  std::unique_ptr<JobRendezvous> rendezvous_;
  std::unique_ptr<HostConnector> connector_;
  std::shared_ptr<const std::string> bundle_frames_;
  std::optional<JobState> state_;
  std::vector<HostRun> hosts_;
  std::string board_at_timeout_;  // the table of hosts and stages
  os::EventLoop::TimerId deadline_timer_ = 0;
  os::EventLoop::TimerId suspend_timer_ = 0;
  int hosts_to_probe_ = 0;  // of which an answer is still to come
  int hosts_to_suspend_ = 0;
  int hosts_to_start_ = 0;
  bool flushing_ = false;
  int stdout_error_ = 0;  // errno of what nobody could write
  Timings timings_;
  StartDisplay display_;
  EventLog events_;
};

}  // namespace hora::launcher
