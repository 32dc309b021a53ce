// SPDX-License-Identifier: Apache-2.0
// Examines hosts: an agent and hora-doctor on every one of them, all at once; a failure on one is a
// finding and does not stop the others. One event loop, every wait has a deadline.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "launcher/doctor/common_world.h"
#include "launcher/doctor/findings.h"
#include "launcher/fleet/fleet.h"
#include "launcher/parts/bundle.h"
#include "launcher/plan/job_spec.h"
#include "launcher/plan/worker_environment.h"
#include "launcher/startup/start_display.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher::doctor {

class Doctor {
 public:
  // `deep`: frameworks are imported and do a tiny operation.
  Doctor(JobSpec spec, Installation installation, EnvironmentList environment, bool deep);
  Doctor(const Doctor&) = delete;
  Doctor& operator=(const Doctor&) = delete;

  Result<Examination> run();

 private:
  enum class Phase { kConnecting, kClocks, kExamining, kProbing, kWorld, kFinishing };

  struct HostState {
    std::string word;  // a client without it gets no answer from this host's probe server
    std::string line;  // of its output, not whole yet
    int port = 0;
    bool ready_to_probe = false;  // its port is known
    bool over = false;            // it has said good-bye, or cannot be asked any more
    int clocks_asked = 0;
    std::int64_t asked_at_ns = 0;
  };

  void connect();
  template <typename Message>
  void on(int, const Message&) {}  // logs, the ends of streams and the like: of no use here
  void on(int host, const StageReached& reached);
  void on(int host, const AgentGreeted&);
  void on(int host, const RuntimeMissing& missing);
  void on(int host, const AgentLeft&);
  void on(int host, const AgentLost& lost);
  void on(int host, const Failure& failure);
  void on(int host, const ProbeResult& result);
  void on(int host, const AgentReady&);
  void on(int host, const RankOutput& output);
  void on(int host, const RankExit& exit);
  void on_line(int host, const Json& line);
  void give_up(int host, Failure failure);

  void proceed();  // looks at where the examination stands, does what is due
  void ask_clock(int host);
  void on_clock(int host, std::int64_t clock_ns);
  std::string probe_line(int host, int peer) const;
  bool measure(int host, int peer);
  void begin_probing();
  void begin_world();
  void finish_asking();
  void on_deadline();
  bool examined(int host) const;
  std::chrono::milliseconds timeout() const;
  void send_line(int host, const std::string& line);
  HostOrder order_for(int host) const;

  JobSpec spec_;
  bool runtime_is_ours_;  // of the job; hora-doctor itself comes in the bundle always
  Installation installation_;
  EnvironmentList environment_;
  Examination examination_;
  std::unique_ptr<os::EventLoop> loop_;
  std::unique_ptr<Fleet> fleet_;
  std::vector<HostState> states_;
  std::unique_ptr<CommonWorld> world_;
  std::unique_ptr<PeerRounds> rounds_;
  Phase phase_ = Phase::kConnecting;
  os::EventLoop::TimerId phase_timer_ = 0;
  Clock::time_point start_;
  StartDisplay display_;
};

}  // namespace hora::launcher::doctor
