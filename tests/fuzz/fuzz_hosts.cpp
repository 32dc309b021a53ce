// SPDX-License-Identifier: Apache-2.0
// A -H list: any bytes give hosts that are printed and read back the same, or an error with a
// caret.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "launcher/plan/host_list.h"
#include "launcher/plan/plan.h"

using namespace hora::launcher;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto hosts = parse_host_list(text, "-H");
  if (!hosts) {
    if (hosts.error().message.find('^') == std::string::npos) std::abort();
    return 0;
  }
  if (hosts->empty() || hosts->size() > static_cast<std::size_t>(kMaxHosts)) std::abort();
  const auto again = parse_host_list(format_host_list(*hosts), "-H");
  if (!again || *again != *hosts) std::abort();

  JobSpec spec;
  spec.hosts = *hosts;
  const auto plan = plan_job(settle_named_slots(spec), 0);
  if (!plan) return 0;
  int ranks = 0;
  for (const HostPlan& host : plan->hosts) {
    for (const Slot& slot : host.slots) {
      if (slot.rank != ranks++ || slot.cross_rank >= slot.cross_size) std::abort();
    }
  }
  if (ranks != plan->world_size) std::abort();
  return 0;
}
