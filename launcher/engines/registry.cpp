// SPDX-License-Identifier: Apache-2.0
#include "launcher/engines/registry.h"

#include <algorithm>
#include <cstdint>

#include "rendezvous/base/text.h"

namespace hora::launcher {

// Each engine defines one function, at the end of its file; the generated hora_engines.inc has one
// line per engine. As in launcher/transports/transport.cpp.
#define HORA_ENGINE(name) const EngineDescriptor* name##_engine_descriptor();
#include "hora_engines.inc"
#undef HORA_ENGINE

std::span<const EngineDescriptor* const> engines() {
#define HORA_ENGINE(name) name##_engine_descriptor(),
  static const EngineDescriptor* const all[] = {
#include "hora_engines.inc"
  };
#undef HORA_ENGINE
  return all;
}

const EngineDescriptor* find_engine(std::string_view name) {
  for (const EngineDescriptor* each : engines()) {
    if (each->name == name) return each;
  }
  return nullptr;
}

// Some variables of an allocation stay set, empty, in what is started from it.
bool is_here(const EngineDescriptor& engine, const EngineInputs& inputs) {
  if (engine.is_here != nullptr) return engine.is_here(inputs);
  const auto value = inputs.variable(engine.mark);
  return value && !value->empty();
}

const EngineDescriptor* engine_here(const EngineInputs& inputs) {
  for (const EngineDescriptor* each : engines()) {
    if (is_here(*each, inputs)) return each;
  }
  return nullptr;
}

std::string engine_reference() {
  std::string out =
      "| engine | inside of an allocation if | hosts and slots | agents start by |\n"
      "|---|---|---|---|\n";
  for (const EngineDescriptor* each : engines()) {
    out += "| " + std::string(each->title) + ": `--engine " + std::string(each->name) + "` | `$" +
           std::string(each->mark) + "` | " + std::string(each->from) + " | " +
           std::string(each->how) + " |\n";
  }
  return out;
}

namespace {

constexpr std::size_t kNamedHosts = 8;

std::string slots_on(const std::vector<Host>& hosts) {
  std::uint64_t slots = 0;
  for (const Host& host : hosts) {
    if (!host.slots) return counted(hosts.size(), "host");
    slots += static_cast<std::uint64_t>(*host.slots);
  }
  return counted(slots, "slot") + " on " + counted(hosts.size(), "host");
}

std::string name_of(const EngineDescriptor& engine, std::string_view job) {
  return std::string(engine.title) + (job.empty() ? "" : " job " + std::string(job));
}

std::string first_hosts(const std::vector<Host>& hosts) {
  const std::size_t named = std::min(hosts.size(), kNamedHosts);
  const std::vector<Host> first(hosts.begin(), hosts.begin() + static_cast<std::ptrdiff_t>(named));
  return format_host_list(first) + (named < hosts.size() ? ",..." : "");
}

}  // namespace

std::string allocation_text(const EngineDescriptor& engine, const Allocation& allocation,
                            std::string_view how) {
  return name_of(engine, allocation.job) + ": " + slots_on(allocation.hosts) + " (" +
         first_hosts(allocation.hosts) + ")" +
         (how.empty() ? ", on this machine" : "; agents start by " + std::string(how));
}

std::string allocation_change_text(const EngineDescriptor& engine, std::string_view job,
                                   const std::vector<Host>& hosts) {
  return name_of(engine, job) + " has " + slots_on(hosts) + " now" +
         (hosts.empty() ? "" : " (" + first_hosts(hosts) + ")");
}

}  // namespace hora::launcher
