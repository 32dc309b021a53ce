// SPDX-License-Identifier: Apache-2.0
#include "launcher/platforms/platform.h"

#include <cstddef>
#include <utility>

#include "launcher/engines/registry.h"
#include "rendezvous/base/address.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

// As in launcher/engines/registry.cpp.
#define HORA_PLATFORM(name) const PlatformDescriptor* name##_platform_descriptor();
#include "hora_platforms.inc"
#undef HORA_PLATFORM

std::span<const PlatformDescriptor* const> platforms() {
#define HORA_PLATFORM(name) name##_platform_descriptor(),
  static const PlatformDescriptor* const all[] = {
#include "hora_platforms.inc"
  };
#undef HORA_PLATFORM
  return all;
}

namespace {

// A rank inherits the variables of its node, and adds those of its launcher.
constexpr std::string_view kRankMarks[] = {"HOROVOD_RANK", "TORCHELASTIC_RUN_ID",
                                           "OMPI_COMM_WORLD_RANK", "PMI_RANK"};

// What contradicts itself is not used; that there are several nodes remains true.
void check(PlatformNodes& nodes) {
  const auto count = static_cast<std::size_t>(nodes.count);
  if (nodes.names.size() != count) nodes.names.clear();
  if (nodes.slots.size() != count) nodes.slots.clear();
  if (nodes.index && (*nodes.index < 0 || *nodes.index >= nodes.count)) nodes.index.reset();
  if (nodes.head.empty() && !nodes.names.empty()) nodes.head = nodes.names.front();
}

}  // namespace

std::optional<PlatformHere> platform_here(const EngineInputs& inputs) {
  for (const std::string_view mark : kRankMarks) {
    if (inputs.variable(mark)) return std::nullopt;
  }
  for (const PlatformDescriptor* each : platforms()) {
    if (each->yields_to_engines && engine_here(inputs) != nullptr) continue;
    auto nodes = each->find(inputs);
    if (!nodes || nodes->count < 2) continue;
    check(*nodes);
    return PlatformHere{each, *std::move(nodes)};
  }
  return std::nullopt;
}

std::string platform_reference() {
  std::string out = "| platform | found by | order of the nodes, slots |\n|---|---|---|\n";
  for (const PlatformDescriptor* each : platforms()) {
    out += "| " + std::string(each->title) + " | `" + std::string(each->mark) + "` | " +
           std::string(each->order) + " |\n";
  }
  return out;
}

std::string text_of(const EngineInputs& inputs, std::string_view name) {
  return inputs.variable(name).value_or("");
}

std::optional<int> number_of(const EngineInputs& inputs, std::string_view name) {
  return parse_int<int>(text_of(inputs, name));
}

std::uint16_t port_of(const EngineInputs& inputs, std::string_view name) {
  const auto port = parse_port(text_of(inputs, name));
  return port ? *port : std::uint16_t{0};
}

std::string without_port(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  const bool is_one = colon != std::string_view::npos && address.find(':') == colon;
  return std::string(is_one ? address.substr(0, colon) : address);
}

std::vector<std::string> names_in(std::string_view list) { return words_of(list, " ,\t\r\n"); }

std::vector<int> slots_on_each(std::optional<int> slots, int count) {
  if (!slots || *slots < 1 || *slots > kMaxSlotsPerHost || count < 1) return {};
  return std::vector<int>(static_cast<std::size_t>(count), *slots);
}

}  // namespace hora::launcher
