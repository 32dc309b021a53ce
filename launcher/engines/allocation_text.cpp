// SPDX-License-Identifier: Apache-2.0
#include "launcher/engines/allocation_text.h"

#include <algorithm>
#include <cstdint>

#include "rendezvous/base/text.h"

namespace hora::launcher {

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
