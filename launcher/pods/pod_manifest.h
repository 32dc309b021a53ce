// SPDX-License-Identifier: Apache-2.0
// The Job of Kubernetes whose pods are the hosts of a job, and JSON values as YAML.  [pure]
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "launcher/plan/job_spec.h"

namespace hora::launcher {

// A JSON value as YAML that a person can edit.

// Block style. Strings stand in double quotes where a plain one could be read as something else,
// and as a literal block where they have several lines; those must end with a line feed.
std::string yaml_text(const nlohmann::ordered_json& value);

// The Job of Kubernetes whose pods are the hosts of a job.

// The container that agents start in; where a manifest has none of this name, its first one.
inline constexpr std::string_view kWorkerContainer = "worker";

// What ends by itself without horarun: pods that were idle for this long, and, that much later,
// their Job.
inline constexpr std::chrono::seconds kIdleLimit{60};
inline constexpr std::chrono::seconds kFinishedJobStays{60};

// The message of a pod that ended for that reason.
inline constexpr std::string_view kNoLauncher = "no horarun works in this pod any more";

// For `kubectl create -f`, as YAML. With a name that the API server completes.
std::string pod_manifest(const JobSpec& spec);

}  // namespace hora::launcher
