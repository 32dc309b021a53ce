// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/pod_options.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "launcher/text/duration.h"
#include "launcher/text/shell_words.h"
#include "launcher/text/usage_error.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// Agents are sent through the API server, to all pods at once.
constexpr std::chrono::milliseconds kAgentsStart{120'000};

// The API server knows what units there are; this is to find a slip before anything is made.
Result<std::string> read_quantity(const OptionValues& values, std::string_view option) {
  const std::string text = values.text(option);
  if (!values.has(option)) return text;
  const std::size_t unit = text.find_first_not_of("0123456789.");
  constexpr std::string_view kUnits[] = {"m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"};
  const bool has_unit = unit != std::string::npos;
  const bool known = !has_unit || std::find(std::begin(kUnits), std::end(kUnits),
                                            text.substr(unit)) != std::end(kUnits);
  if (unit == 0 || !known) {
    return usage(std::string(option) +
                 ": expected a quantity of Kubernetes such as 4, 500m or 2Gi, "
                 "found " +
                 quote(text));
  }
  return text;
}

// A manifest says all this itself.
Status check_with_manifest(const OptionValues& values) {
  for (const std::string_view option : {"--workers", "--gpus-per-worker", "--cpus-per-worker",
                                        "--memory-per-worker", "--shm", "--dry-run"}) {
    if (values.has(option)) {
      return usage(std::string(option) + " cannot be used with --manifest: the manifest says it");
    }
  }
  return Ok{};
}

// In Kubernetes' own units, as they will stand in the manifest.
Status read_resources(const OptionValues& values, PodsSpec& pods) {
  for (const auto& [option, field] :
       {std::pair{"--cpus-per-worker", &PodsSpec::cpus},
        std::pair{"--memory-per-worker", &PodsSpec::memory}, std::pair{"--shm", &PodsSpec::shm}}) {
    auto quantity = read_quantity(values, option);
    if (!quantity) return std::move(quantity).error();
    pods.*field = std::move(*quantity);
  }
  pods.gpus = values.count("--gpus-per-worker").value_or(0);
  pods.gpu_resource = values.text("--gpu-resource", pods.gpu_resource);
  return Ok{};
}

// Without --workers as many as the GPUs of all ranks fill.
Status read_workers(const OptionValues& values, int ranks, PodsSpec& pods) {
  if (const auto workers = values.count("--workers")) {
    pods.workers = *workers;
  } else if (ranks > 0 && pods.gpus > 0) {
    pods.workers = (ranks + pods.gpus - 1) / pods.gpus;
  } else {
    return usage("how many pods? expected --workers N");
  }
  if (ranks > 0 && ranks < pods.workers) {
    return usage("-np " + std::to_string(ranks) + " leaves some of --workers " +
                 std::to_string(pods.workers) + " without a rank");
  }
  return Ok{};
}

}  // namespace

// What has reached hosts until here (an engine around this process, a variable of an operator)
// would reach others than the pods.
Status read_pod_options(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job) {
  PodsSpec pods;
  if (values.has("--kubectl")) {
    auto words = split_shell_words(values.text("--kubectl"));
    if (!words) return std::move(words).error().with_context("--kubectl");
    if (words->empty()) return usage("--kubectl: expected a command, found only blanks");
    pods.kubectl = std::move(*words);
  }
  pods.name_space = values.text("--namespace");
  pods.image = values.text("--image");
  pods.manifest_file = values.text("--manifest");
  pods.patience = parse_duration(values.text("--start-timeout")).value_or(pods.patience);
  // Pods reach each other; whether they reach another machine, only its user knows.
  const std::string dial = values.text("--dial", "auto");
  const bool in_a_pod = inputs.variable && inputs.variable("KUBERNETES_SERVICE_HOST").has_value();
  pods.dial = dial == "yes" || (dial == "auto" && in_a_pod);
  if (!pods.manifest_file.empty()) {
    HORA_TRY(check_with_manifest(values));
  } else if (pods.image.empty()) {
    return usage("which image? expected --image IMAGE, or --manifest FILE");
  } else {
    HORA_TRY(read_resources(values, pods));
    HORA_TRY(read_workers(values, job.num_proc, pods));
  }
  job.pods = std::move(pods);
  // The words that reach a pod come when the pods are there.
  job.hosts.clear();
  job.engine.reset();
  job.transport = "command";
  job.local_directly = false;
  if (!values.has("--start-timeout")) job.start_timeout = kAgentsStart;
  // This machine's folder is not in the image; that of the container's own process is.
  if (job.working_directory.empty()) {
    job.working_directory = "/proc/1/cwd";
  } else if (!job.working_directory.starts_with('/')) {
    job.working_directory = "/proc/1/cwd/" + job.working_directory;
  }
  return Ok{};
}

}  // namespace hora::launcher
