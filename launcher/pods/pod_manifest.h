// SPDX-License-Identifier: Apache-2.0
// The Job of Kubernetes whose pods are the hosts of a job.  [pure]
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "launcher/plan/job_spec.h"

namespace hora::launcher {

// The container that agents start in; where a manifest has none of this name, its first one.
inline constexpr std::string_view kWorkerContainer = "worker";

// What ends by itself when horarun is no more: pods in which nobody has worked for this long, and,
// so much later, their Job.
inline constexpr std::chrono::seconds kIdleLimit{60};
inline constexpr std::chrono::seconds kFinishedJobStays{60};

// What a pod that ended for that says.
inline constexpr std::string_view kNobodyWorks = "no horarun works in this pod any more";

// For `kubectl create -f`, as YAML. With a name that the API server completes.
std::string pod_manifest(const JobSpec& spec);

}  // namespace hora::launcher
