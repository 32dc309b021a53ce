// SPDX-License-Identifier: Apache-2.0
// Assigns ranks to hosts: host after host in the order given, each filled before the next one.
#include "launcher/plan/plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "launcher/plan/rank_count.h"
#include "launcher/text/few_names.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// "a:2, b:2 and 14 more"
std::string slots_by_host(const std::vector<Host>& hosts) {
  std::vector<std::string> out;
  for (const Host& host : hosts) out.push_back(format_host(host));
  return few_names(out);
}

// The same hosts with room for all ranks, alike where they can be: "a:4,b:4". The slots of many
// hosts would be more than anybody types: the first few stand for all.
std::string enough_slots(const std::vector<Host>& hosts, int num_proc) {
  constexpr std::size_t kShown = 4;
  // Rounded up: the slots that are too many do no harm.
  const auto count = static_cast<int>(hosts.size());
  const int each = num_proc / count + (num_proc % count == 0 ? 0 : 1);
  std::vector<std::string> out;
  for (const Host& host : hosts) {
    if (out.size() == kShown) return join(out, ",") + ",...";
    out.push_back(format_host(Host{host.name, host.user, std::max(each, host.slots.value_or(0))}));
  }
  return join(out, ",");
}

// The message computes what would help, since this is the error that beginners meet first.
Error too_few_slots(const std::vector<Host>& hosts, std::int64_t available, int num_proc) {
  std::string message = "-np " + std::to_string(num_proc) + " asks for " +
                        counted(num_proc, "rank") + ", but the hosts offer " +
                        counted(available, "slot") + " (" + slots_by_host(hosts) + "). ";
  message +=
      (hosts.size() == 1 ? "Give the host more slots (-H " : "Give the hosts more slots (-H ") +
      enough_slots(hosts, num_proc) +
      "), add hosts, use --slots-per-host N, or ask for fewer ranks.";
  return make_error(ErrorCode::kUsage, std::move(message));
}

// cross_rank is the place among the hosts that have a slot with this local rank; cross_size is the
// number of those hosts. Hosts may differ in slots, so both depend on the local rank.
void fill_cross_ranks(Plan& plan) {
  std::vector<int> sharing;  // by local rank
  for (HostPlan& host : plan.hosts) {
    if (sharing.size() < host.slots.size()) sharing.resize(host.slots.size(), 0);
    for (Slot& slot : host.slots) {
      slot.cross_rank = sharing[static_cast<std::size_t>(slot.local_rank)]++;
    }
  }
  for (HostPlan& host : plan.hosts) {
    for (Slot& slot : host.slots) {
      slot.cross_size = sharing[static_cast<std::size_t>(slot.local_rank)];
    }
  }
}

// How many ranks each host gets. The caller has checked that there are slots for all of them, so
// each round of the outer loop places at least one.
std::vector<int> share_ranks(const std::vector<Host>& hosts, int wanted, MapBy map_by) {
  std::vector<int> shares(hosts.size(), 0);
  // In turn, one rank at a time; else each host is filled in its turn.
  const int at_once = map_by == MapBy::kNode ? 1 : wanted;
  for (int left = wanted; left > 0;) {
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      const int more = std::min({hosts[i].slots.value_or(0) - shares[i], left, at_once});
      shares[i] += more;
      left -= more;
    }
  }
  return shares;
}

// Numbers the ranks. Local ranks keep the order of the ranks either way.
void number_ranks(Plan& plan, MapBy map_by) {
  if (map_by == MapBy::kSlot) {
    for (HostPlan& host : plan.hosts) {
      for (Slot& slot : host.slots) slot.rank = plan.world_size++;
    }
    return;
  }
  bool is_dealt = false;
  for (std::size_t local_rank = 0; !is_dealt; ++local_rank) {
    is_dealt = true;
    for (HostPlan& host : plan.hosts) {
      if (local_rank >= host.slots.size()) continue;
      host.slots[local_rank].rank = plan.world_size++;
      is_dealt = false;
    }
  }
}

}  // namespace

Result<Plan> plan_job(const std::vector<Host>& hosts, int num_proc, MapBy map_by) {
  for (const Host& host : hosts) {
    if (host.slots) continue;
    return make_error(ErrorCode::kUsage, "the slots of host " + host.name +
                                             " are known only after horarun has connected to it "
                                             "(--slots-per-host auto)");
  }
  const std::int64_t available = count_slots(hosts);
  if (hosts.empty() || available == 0) {
    return make_error(ErrorCode::kUsage, hosts.empty()
                                             ? "no hosts to run on"
                                             : "no host has a slot (" + slots_by_host(hosts) +
                                                   "); expected at least one such as node1:4");
  }
  if (available < num_proc) return too_few_slots(hosts, available, num_proc);
  const std::int64_t wanted = num_proc > 0 ? num_proc : available;
  HORA_TRY(check_rank_count(wanted));

  Plan plan;
  const std::vector<int> shares = share_ranks(hosts, static_cast<int>(wanted), map_by);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    // Hosts beyond the wanted number take no part and are not contacted.
    if (shares[i] == 0) continue;
    HORA_TRY(check_ranks_of_host(hosts[i].name, shares[i]));
    HostPlan part;
    part.host = hosts[i];
    part.index = static_cast<int>(plan.hosts.size());
    for (int local_rank = 0; local_rank < shares[i]; ++local_rank) {
      part.slots.push_back(Slot{0, local_rank, 0, 1});
    }
    plan.hosts.push_back(std::move(part));
  }
  number_ranks(plan, map_by);
  fill_cross_ranks(plan);
  return plan;
}

Result<Plan> plan_job(const JobSpec& spec, const std::vector<Host>& hosts) {
  if (spec.seats.empty()) return plan_job(hosts, spec.num_proc, spec.map_by);
  // Ranks come in order, and so do the hosts that they make known: no host is there without a rank.
  Plan plan;
  std::map<std::size_t, std::size_t> places;  // of hosts[i] in the plan
  for (const RankSeat& seat : spec.seats) {
    const auto [place, is_new] = places.try_emplace(seat.host, plan.hosts.size());
    if (is_new) {
      HostPlan& host = plan.hosts.emplace_back();
      host.host = hosts.at(seat.host);
      host.index = static_cast<int>(place->second);
    }
    auto& slots = plan.hosts[place->second].slots;
    slots.push_back({plan.world_size++, static_cast<int>(slots.size()), 0, 1, seat.cores});
  }
  fill_cross_ranks(plan);
  return plan;
}

Status check_shown_ranks(const JobSpec& spec, const Plan& plan) {
  const bool may_shrink = spec.elastic || (spec.restart && spec.restart->attempt > 0);
  if (!spec.shown_ranks || may_shrink) return Ok{};
  const int largest = spec.shown_ranks->largest();
  if (largest < plan.world_size) return Ok{};
  return make_error(ErrorCode::kUsage, "--show-ranks: there is no rank " + std::to_string(largest) +
                                           "; the job has the ranks 0 to " +
                                           std::to_string(plan.world_size - 1));
}

std::string planned_host_name(const std::vector<HostPlan>& hosts, int index) {
  if (index < 0 || index >= static_cast<int>(hosts.size())) return "an unknown host";
  return hosts[static_cast<std::size_t>(index)].host.name;
}

// -np without hosts means this machine.
std::vector<Host> settle_named_slots(const JobSpec& spec) {
  if (spec.hosts.empty()) return {Host{"localhost", "", spec.num_proc}};
  std::vector<Host> hosts = spec.hosts;
  for (Host& host : hosts) {
    if (!host.slots && !spec.slots_per_host_auto) host.slots = spec.slots_per_host.value_or(1);
  }
  return hosts;
}

bool has_open_slots(const std::vector<Host>& hosts) {
  return std::any_of(hosts.begin(), hosts.end(), [](const Host& host) { return !host.slots; });
}

Result<std::vector<Host>> settle_gpu_slots(std::vector<Host> hosts, const std::vector<int>& gpus) {
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (hosts[i].slots) continue;
    const int count = i < gpus.size() ? gpus[i] : 0;
    if (count <= 0) {
      return make_error(ErrorCode::kUsage, "--slots-per-host auto: host " + hosts[i].name +
                                               " has no GPUs; give its slots, such as " +
                                               format_host(Host{hosts[i].name, hosts[i].user, 4}));
    }
    hosts[i].slots = std::min(count, kMaxSlotsPerHost);
  }
  return hosts;
}

}  // namespace hora::launcher
