// SPDX-License-Identifier: Apache-2.0
// --mpi: what an ordinary run does before its ranks start, on hosts whose ranks mpirun will start:
// the runtime is brought to every host, and the network between them is found. No rank runs.
#pragma once

#include "launcher/plan/mpirun_plan.h"
#include "launcher/runs/fixed_hosts_run.h"

namespace hora::launcher {

class MpiPreparation final : public FixedHostsRun {
 public:
  // `findings` must outlive the run; complete when the job has succeeded.
  MpiPreparation(RunContext context, HostFindings& findings)
      : FixedHostsRun(std::move(context)), findings_(findings) {}

  // The job of the preparation, without what is mpirun's to do.
  static JobSpec job_of(JobSpec spec);

  Status make_plan() override;
  void on_ready(int host, AgentReady ready) override;
  void start_all() override;

 private:
  void on_network(const NetworkChoice& network) override;

  HostFindings& findings_;
};

}  // namespace hora::launcher
