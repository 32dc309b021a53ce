// SPDX-License-Identifier: Apache-2.0
// A rankfile: any bytes place each rank once, on a host that has room for it, or give an error that
// begins with the file's name.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "launcher/plan/binding.h"
#include "launcher/plan/plan.h"

using namespace hora::launcher;

namespace {

// Two sockets with two cores of two hardware threads each.
std::vector<CpuPlace> small_machine() {
  std::vector<CpuPlace> cpus;
  for (int cpu = 0; cpu < 8; ++cpu) {
    CpuPlace place;
    place.cpu = cpu;
    place.core = cpu % 4;
    place.package = cpu % 4 / 2;
    cpus.push_back(place);
  }
  return cpus;
}

void check_binding(const HostPlan& host) {
  std::string cores;
  for (const Slot& slot : host.slots) cores += (&slot == host.slots.data() ? "" : " ") + slot.cores;
  const int ranks = static_cast<int>(host.slots.size());
  const auto binding = plan_binding(small_machine(), ranks, std::string(kCoresMode) + cores);
  if (binding && binding->cpus.size() != host.slots.size()) std::abort();
  if (!binding && binding.error().message.find("is not there") == std::string::npos) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto lines = parse_rankfile(text, "file");
  if (!lines) {
    if (!lines.error().message.starts_with("file:")) std::abort();
    return 0;
  }
  JobSpec job;
  if (!seat_ranks(*lines, "file", job)) return 0;
  const auto plan = plan_job(job, settle_named_slots(job));
  if (!plan || plan->world_size != static_cast<int>(lines->size())) std::abort();
  std::size_t ranks = 0;
  for (const HostPlan& host : plan->hosts) {
    for (const Slot& slot : host.slots) {
      const RankLine& line = lines->at(static_cast<std::size_t>(slot.rank));
      if (line.cores != slot.cores || slot.cross_rank >= slot.cross_size) std::abort();
    }
    ranks += host.slots.size();
    check_binding(host);
  }
  if (ranks != lines->size()) std::abort();
  return 0;
}
