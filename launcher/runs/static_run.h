// SPDX-License-Identifier: Apache-2.0
// The usual run: ranks on a fixed list of hosts, started by their agents.
#pragma once

#include <vector>

#include "launcher/runs/fixed_hosts_run.h"

namespace hora::launcher {

class StaticRun final : public FixedHostsRun {
 public:
  explicit StaticRun(RunContext context) : FixedHostsRun(std::move(context)) {}

  Status make_plan() override;
  void start_all() override;
  void on_started(int host) override;
  void on_progress(int host, const RankProgress& progress) override;

 private:
  Status open_streams() override;
  std::size_t files_needed() const override;
  Status settle_slots() override;
  void on_network(const NetworkChoice& network) override;

  std::vector<Host> open_hosts_;  // --slots-per-host auto: until the agents have counted
  std::vector<Stage> progress_;   // of the ranks of each host, once they run
  int hosts_to_start_ = 0;
  bool starts_with_order_ = false;
};

}  // namespace hora::launcher
