// SPDX-License-Identifier: Apache-2.0
// Plans an epoch from the hosts' offers. Survivors come before new ranks, because they hold the
// state.
#include "launcher/elastic/epoch_plan.h"

#include <algorithm>
#include <map>

#include "rendezvous/base/text.h"

namespace hora::launcher::elastic {

namespace {

std::map<std::string, int> ranks_by_host(const Plan& plan) {
  std::map<std::string, int> ranks;
  for (const HostPlan& host : plan.hosts) {
    ranks[host.host.name] = static_cast<int>(host.slots.size());
  }
  return ranks;
}

}  // namespace

Plan plan_epoch(std::vector<HostOffer> offers, std::optional<int> most) {
  // The first host becomes rank 0, which broadcasts its state, so it must have some.
  const auto first = std::find_if(offers.begin(), offers.end(), [](const HostOffer& offer) {
    return offer.survivors > 0 && offer.has_state;
  });
  if (first != offers.end()) std::rotate(offers.begin(), first, first + 1);

  int left = most.value_or(kMaxRanks);
  std::vector<Host> hosts;
  for (const HostOffer& offer : offers) {
    const int kept = std::min(offer.survivors, left);
    left -= kept;
    hosts.push_back(offer.host);
    hosts.back().slots = kept;
  }
  for (std::size_t i = 0; i < offers.size(); ++i) {
    // New ranks get the local ranks after all survivors of their host.
    if (*hosts[i].slots < offers[i].survivors) continue;
    const int added = std::min(offers[i].room, left);
    left -= added;
    *hosts[i].slots += added;
  }
  auto plan = plan_job(hosts, 0);
  // Without any slot the plan is empty.
  return plan ? std::move(*plan) : Plan{};
}

// A change can both add and remove ranks; Horovod's workers learn which.
PlanChange compare_plans(const Plan& now, const Plan& next) {
  const auto before = ranks_by_host(now);
  const auto after = ranks_by_host(next);
  PlanChange change;
  for (const auto& [host, count] : before) {
    const auto found = after.find(host);
    const int then = found == after.end() ? 0 : found->second;
    change.removed = change.removed || then < count;
    change.added = change.added || then > count;
  }
  for (const auto& [host, count] : after) {
    change.added = change.added || before.count(host) == 0;
  }
  return change;
}

std::string describe_plan(const Plan& plan) {
  constexpr std::size_t kShown = 16;
  std::string text = counted(plan.world_size, "rank") + ": ";
  for (std::size_t i = 0; i < std::min(plan.hosts.size(), kShown); ++i) {
    Host host = plan.hosts[i].host;
    host.slots = static_cast<int>(plan.hosts[i].slots.size());
    text += (i == 0 ? "" : ", ") + format_host(host);
  }
  if (plan.hosts.size() > kShown) {
    text += " and " + std::to_string(plan.hosts.size() - kShown) + " more hosts";
  }
  return text;
}

}  // namespace hora::launcher::elastic
