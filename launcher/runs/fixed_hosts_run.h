// SPDX-License-Identifier: Apache-2.0
// A run whose hosts are all known before it begins: connects them, and finds the network over which
// they reach each other.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "launcher/fleet/network_survey.h"
#include "launcher/process/open_files_limit.h"
#include "launcher/runs/run.h"

namespace hora::launcher {

class FixedHostsRun : public Run {
 public:
  void connect() override;
  void prepare_all() override;
  void on_probe_result(int host, ProbeResult result) override;

 protected:
  using Run::Run;

  // The local agents run; the remote ones are not connected yet.
  virtual Status open_streams() { return Ok{}; }
  virtual std::size_t files_needed() const { return 0; }  // besides those of the links
  // All agents have greeted.
  virtual Status settle_slots() { return Ok{}; }
  virtual WayBack way_back() const { return WayBack::kNeeded; }
  virtual void on_network(const NetworkChoice& network) = 0;

  // Sends every host its order. Its files have been sent before.
  void send_orders(const NetworkChoice& network);

 private:
  HostNetwork network_here() const;
  // Users name hosts: an error is one machine under two names.
  Status check_machines() const;

  std::optional<OpenFilesLimit> files_limit_;
  std::unique_ptr<NetworkSurvey> survey_;
};

}  // namespace hora::launcher
