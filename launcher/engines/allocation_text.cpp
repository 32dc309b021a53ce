// SPDX-License-Identifier: Apache-2.0
#include "launcher/engines/allocation_text.h"

#include <algorithm>
#include <cstdint>

namespace hora::launcher {

namespace {

constexpr std::size_t kNamedHosts = 8;

std::string counted(std::int64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string slots_on(const std::vector<Host>& hosts) {
  std::int64_t slots = 0;
  for (const Host& host : hosts) {
    if (!host.slots) return counted(static_cast<std::int64_t>(hosts.size()), "host");
    slots += *host.slots;
  }
  return counted(slots, "slot") + " on " + counted(static_cast<std::int64_t>(hosts.size()), "host");
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
         first_hosts(allocation.hosts) + "); agents start by " + std::string(how);
}

std::string allocation_change_text(const EngineDescriptor& engine, std::string_view job,
                                   const std::vector<Host>& hosts) {
  return name_of(engine, job) + " has " + slots_on(hosts) + " now" +
         (hosts.empty() ? "" : " (" + first_hosts(hosts) + ")");
}

}  // namespace hora::launcher
