// SPDX-License-Identifier: Apache-2.0
// SageMaker's training jobs without a distribution of its toolkit: a file in each container. Its
// `algo-2` is what other containers call this one; its host name may be another.
#include <nlohmann/json.hpp>

#include "launcher/platforms/platform.h"

namespace hora::launcher {

namespace {

constexpr const char* kFile = "/opt/ml/input/config/resourceconfig.json";

std::optional<PlatformNodes> find(const EngineInputs& inputs) {
  const auto text = inputs.read_file(kFile);
  if (!text) return std::nullopt;
  const auto config = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object() || !config.contains("hosts") || !config["hosts"].is_array()) {
    return std::nullopt;
  }
  PlatformNodes found;
  const auto current = config.value("current_host", nlohmann::json());
  for (const auto& host : config["hosts"]) {
    if (!host.is_string()) return std::nullopt;
    if (host == current) found.index = static_cast<int>(found.names.size());
    found.names.push_back(host.get<std::string>());
  }
  found.count = static_cast<int>(found.names.size());
  found.slots = slots_on_each(number_of(inputs, "SM_NUM_GPUS"), found.count);
  found.job = text_of(inputs, "TRAINING_JOB_NAME");
  return found;
}

constexpr PlatformDescriptor kDescriptor{.title = "SageMaker",
                                         .mark = "/opt/ml/input/config/resourceconfig.json",
                                         .order = "its `hosts`; `$SM_NUM_GPUS`, else GPUs",
                                         .find = find};

}  // namespace

const PlatformDescriptor* sagemaker_platform_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
