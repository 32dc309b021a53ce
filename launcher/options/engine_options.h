// SPDX-License-Identifier: Apache-2.0
// The options of jobs whose hosts come from an engine, from a discovery script (elastic jobs) or
// from Kubernetes.  [pure]
#pragma once

#include <optional>

#include "launcher/options/option_check.h"
#include "launcher/options/settings.h"
#include "launcher/plan/job_spec.h"
#include "launcher/plan/platform_node.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// The options that make a job elastic.

// Whether an option that makes a job elastic is given.
bool is_elastic(const OptionValues& values);
// Options that mean nothing in another job.
bool is_for_elastic_jobs(const OptionRow& row);

// After -np, -H and --slots-per-host were read. A missing -np is --min-np.
Status read_elastic_options(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job);

// The options of engines: whose hosts a job gets that names none, and how its agents start.

// After -H and --hostfile were read, before the transport is chosen: sets the hosts, the engine,
// and the command that starts agents. Errors (kUsage): the engine asked for is not here, or its
// allocation cannot be read.
Status read_engine_options(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job);

// Where a platform (launcher/platforms/) runs this command on several nodes: this one, and the
// hosts of the job (job.listen and job.hosts, before other options are read). Errors (kUsage), with
// the lines that work: they cannot find each other, so that each would run the whole job.
Result<std::optional<PlatformNode>> read_platform(const OptionValues& values,
                                                  const ProcessInputs& inputs, JobSpec& job);

// For --show-config: the allocation, or why it cannot be used; empty where none would be.
std::string describe_allocation(const OptionValues& values, const ProcessInputs& inputs);

// The options of jobs in pods of their own: horarun k8s.

// After all other options of the job, some of which have other defaults in pods. Errors are kUsage.
Status read_pod_options(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job);

}  // namespace hora::launcher
