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

std::string first_hosts(const std::vector<Host>& hosts) {
  const std::size_t named = std::min(hosts.size(), kNamedHosts);
  const std::vector<Host> first(hosts.begin(), hosts.begin() + static_cast<std::ptrdiff_t>(named));
  return format_host_list(first) + (named < hosts.size() ? ",..." : "");
}

}  // namespace

std::string allocation_text(const EngineDescriptor& engine, const Allocation& allocation,
                            std::string_view how) {
  std::int64_t slots = 0;
  for (const Host& host : allocation.hosts) slots += host.slots.value_or(0);
  return std::string(engine.title) + (allocation.job.empty() ? "" : " job " + allocation.job) +
         ": " + counted(slots, "slot") + " on " +
         counted(static_cast<std::int64_t>(allocation.hosts.size()), "host") + " (" +
         first_hosts(allocation.hosts) + "); agents start by " + std::string(how);
}

}  // namespace hora::launcher
