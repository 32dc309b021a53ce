// SPDX-License-Identifier: Apache-2.0
// How a job gets from its hosts to its running ranks. The supervisor drives a run by what the job
// state decides; the kinds differ in where the hosts come from and in what starts the ranks. On the
// event loop's thread, as are all calls of RunContext.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/fleet/fleet.h"
#include "launcher/job/job_rendezvous.h"
#include "launcher/job/job_state.h"
#include "launcher/job/orders.h"
#include "launcher/network/relay.h"
#include "launcher/output/job_streams.h"
#include "launcher/plan/job_spec.h"
#include "launcher/plan/plan.h"
#include "launcher/plan/worker_environment.h"
#include "launcher/report/narrator.h"
#include "launcher/shipping/user_files.h"
#include "rendezvous/net/stream.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

// The inputs of a run. All of them outlive it.
struct RunContext {
  const JobSpec& spec;
  const EnvironmentList& environment;  // the launcher's
  JobIdentity& identity;
  const net::AcceptStream& accept_stream;  // of --rendezvous-tls
  const ShipFiles& ship_files;
  os::EventLoop& loop;
  Fleet& fleet;
  Narrator& narrator;
  std::function<void(const Event&)> feed;  // informs the job state
  std::function<bool()> is_over;           // the job is ending, or has ended
  // The ranks of the plan are known. An Error: an option asks for a rank that is not among them.
  std::function<Status(const Plan&)> on_planned;
  std::function<void()> on_running;  // all ranks run, once
  std::function<void(int fd, int errnum)> on_console_broken;
};

class Run {
 public:
  virtual ~Run() = default;
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Before any host is contacted. Errors (kUsage): bad hosts.
  virtual Status make_plan() = 0;
  virtual void connect() = 0;

  // Decisions of the job state: all hosts have said hello; all are ready.
  virtual void prepare_all() {}
  virtual void start_all() {}

  // Reports of agents. NOLINTBEGIN(performance-unnecessary-value-param): what overrides keep.
  virtual void on_probe_result(int, ProbeResult) {}
  virtual void on_relay_port(int) {}
  virtual void on_relayed(const RelayMessage&) {}
  virtual void on_ready(int, AgentReady) {}
  // NOLINTEND(performance-unnecessary-value-param)
  virtual void on_started(int, const Started&) {}
  virtual void on_progress(int, const RankProgress&) {}
  // The host has no agent of the fleet: the run asks it for its end, and reports that.
  virtual bool end_host(int) { return false; }
  // Of the whole job, where another launcher knows it and it failed; else 0.
  virtual int exit_code() const { return 0; }
  // The job state has taken this event, and its actions are done.
  virtual void on_job_event(const Event&) {}

  // By the numbers of the fleet; without ranks while the slots of a host are not settled.
  const Plan& plan() const { return plan_; }
  JobStreams* streams() { return streams_.get(); }  // null before make_plan(), or without a plan

 protected:
  explicit Run(RunContext context) : context_(std::move(context)) {}

  void use_plan(Plan plan);  // makes its streams
  void launch_failed(std::string_view code, const Error& error);
  void reach(int host, Stage stage);
  void report_vendor_parts();  // those that are on their way since the call before
  void add_environment(HostOrder& order) const;                           // of --ship-env
  static HostNetwork own_network(std::vector<InterfaceInfo> interfaces);  // of this machine
  // The addresses of `hosts` are known to the rendezvous where their ranks present no token.
  rendezvous::AccessPolicy access_for(const std::vector<int>& hosts) const;
  Status start_rendezvous(const Plan& plan, const NetworkChoice& network,
                          rendezvous::AccessPolicy access);

  RunContext context_;
  Plan plan_;
  std::unique_ptr<JobStreams> streams_;
  std::unique_ptr<JobRendezvous> rendezvous_;
};

}  // namespace hora::launcher
