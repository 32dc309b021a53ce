// SPDX-License-Identifier: Apache-2.0
// The usual run: ranks on a fixed list of hosts, started by their agents.
#pragma once

#include <memory>
#include <vector>

#include "launcher/network/relay.h"
#include "launcher/runs/fixed_hosts_run.h"

namespace hora::launcher {

class StaticRun final : public FixedHostsRun {
 public:
  explicit StaticRun(RunContext context) : FixedHostsRun(std::move(context)) {}

  Status make_plan() override;
  void start_all() override;
  void on_started(int host, const Started& started) override;
  void on_progress(int host, const RankProgress& progress) override;
  void on_relay_port(int port) override;
  void on_relayed(const RelayMessage& message) override;

 private:
  Status open_streams() override;
  std::size_t files_needed() const override;
  Status settle_slots() override;
  WayBack way_back() const override;
  void on_network(const NetworkChoice& network) override;
  void order_ranks(const NetworkChoice& network);
  void open_channel(RelayChannels::Number number);

  std::vector<Host> open_hosts_;  // --slots-per-host auto: until the agents have counted
  std::vector<Stage> progress_;   // of the ranks of each host, once they run
  NetworkChoice network_;         // where the relay has to be opened before the orders
  std::unique_ptr<RelayChannels> relay_;
  int hosts_to_start_ = 0;
  bool starts_with_order_ = false;
};

}  // namespace hora::launcher
