// SPDX-License-Identifier: Apache-2.0
// An elastic run: hosts come and go, and its ranks meet again in every epoch. Carries out what the
// elastic state decides. The plan has a host per agent, in the order in which they were connected,
// and a rank is the number of a worker process.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "launcher/elastic/elastic_state.h"
#include "launcher/elastic/horovod_notifier.h"
#include "launcher/elastic/host_discovery.h"
#include "launcher/runs/run.h"

namespace hora::launcher {

class ElasticRun final : public Run {
 public:
  explicit ElasticRun(RunContext context);
  ~ElasticRun() override;

  Status make_plan() override;
  void connect() override;
  void on_job_event(const Event& event) override;

 private:
  void feed(elastic::ElasticEvent event);
  void perform(const elastic::ElasticAction& action);
  void arm_deadline();
  void start_discovery();
  void follow_script(elastic::HostDiscovery::Options& options,
                     elastic::HostDiscovery::Handlers& handlers);
  void follow_engine(elastic::HostDiscovery::Options& options,
                     elastic::HostDiscovery::Handlers& handlers);
  void on_discovered(std::vector<Host> hosts);
  void on_not_discovered(std::string why);
  std::optional<Failure> second_name_of_machine(int host);
  void add_host(const Host& host);

  // --- an epoch ---
  void prepare_epoch();
  std::variant<NetworkChoice, Failure> choose_network() const;
  Status open_rendezvous(const NetworkChoice& network);
  Status add_ranks();
  void send_orders(const NetworkChoice& network);
  void begin_epoch();
  void break_epoch();

  // --- requests and answers of workers, through the rendezvous ---
  Status watch_scopes();
  void report_place(int worker, int local_rank, const Host& host, const std::string& slot,
                    const std::string& place);
  void notify_workers(elastic::PlanChange change);

  elastic::ElasticState state_;
  std::unique_ptr<elastic::HostDiscovery> discovery_;   // none: the hosts are fixed
  std::unique_ptr<elastic::HorovodNotifier> notifier_;  // for workers that are the real Horovod's
  std::deque<elastic::ElasticEvent> events_;            // that came while one was being carried out
  bool is_performing_ = false;
  os::EventLoop::TimerId timer_ = 0;
  int known_workers_ = 0;                // to the streams
  int host_updates_ = 0;                 // announced in this epoch
  std::vector<std::string> interfaces_;  // of the hosts of this epoch's plan
  bool discovered_ = false;              // the script has listed hosts once
  std::string discovery_problem_;
  std::vector<Host> engine_hosts_;  // that the engine has listed last
  std::string engine_end_;          // it has ended the allocation, in its words
};

}  // namespace hora::launcher
