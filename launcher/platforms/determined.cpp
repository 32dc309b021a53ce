// SPDX-License-Identifier: Apache-2.0
// Determined, with a launcher of the user's own. Its launch.horovod runs horovodrun -H on one
// node.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "launcher/platforms/platform.h"

namespace hora::launcher {

namespace {

constexpr const char* kFile = "/run/determined/info/rendezvous.json";

std::optional<PlatformNodes> find(const EngineInputs& inputs) {
  const auto text = inputs.read_file(kFile);
  if (!text) return std::nullopt;
  const auto info = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!info.is_object()) return std::nullopt;
  PlatformNodes found;
  for (const auto& address : info.value("container_addrs", nlohmann::json::array())) {
    if (address.is_string()) found.names.push_back(address.get<std::string>());
  }
  for (const auto& slots : info.value("container_slot_counts", nlohmann::json::array())) {
    // 0: a task without GPUs.
    if (slots.is_number_integer())
      found.slots.push_back(std::clamp(slots.get<int>(), 1, kMaxSlotsPerHost));
  }
  const auto rank = info.value("container_rank", nlohmann::json());
  if (rank.is_number_integer()) found.index = rank.get<int>();
  found.count = static_cast<int>(found.names.size());
  found.job = text_of(inputs, "DET_TASK_ID");
  return found;
}

constexpr PlatformDescriptor kDescriptor{.title = "Determined",
                                         .mark = "/run/determined/info/rendezvous.json",
                                         .order = "its `container_addrs`, `container_slot_counts`",
                                         .find = find};

}  // namespace

const PlatformDescriptor* determined_platform_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
