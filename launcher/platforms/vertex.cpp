// SPDX-License-Identifier: Apache-2.0
// Vertex AI's custom jobs. Pool 0 has one node, pool 1 the others; pools 2 and 3 are for servers
// and evaluators, with commands of their own.
#include <nlohmann/json.hpp>

#include "launcher/platforms/platform.h"

namespace hora::launcher {

namespace {

constexpr const char* kPools[] = {"workerpool0", "workerpool1"};

void add(const nlohmann::json& pool, std::vector<std::string>& names) {
  if (!pool.is_array()) return;
  for (const auto& node : pool) {
    // The port is not one of ssh.
    if (node.is_string()) names.push_back(without_port(node.get<std::string>()));
  }
}

std::optional<PlatformNodes> find(const EngineInputs& inputs) {
  const auto spec = nlohmann::json::parse(text_of(inputs, "CLUSTER_SPEC"), nullptr,
                                          /*allow_exceptions=*/false);
  if (!spec.is_object()) return std::nullopt;
  const auto part = [](const nlohmann::json& of, const char* name) {
    return of.is_object() && of.contains(name) ? of[name] : nlohmann::json();
  };
  const auto task = part(spec, "task");
  const auto place = part(task, "index");
  PlatformNodes found;
  for (const char* const pool : kPools) {
    if (part(task, "type") == pool && place.is_number_integer()) {
      found.index = place.get<int>() + static_cast<int>(found.names.size());
    }
    add(part(part(spec, "cluster"), pool), found.names);
  }
  found.count = static_cast<int>(found.names.size());
  found.job = text_of(inputs, "CLOUD_ML_JOB_ID");
  return found;
}

constexpr PlatformDescriptor kDescriptor{.title = "Vertex AI",
                                         .mark = "$CLUSTER_SPEC",
                                         .order = "`workerpool0`, then `workerpool1`; GPUs",
                                         .find = find};

}  // namespace

const PlatformDescriptor* vertex_platform_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
