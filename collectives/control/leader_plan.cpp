// SPDX-License-Identifier: Apache-2.0
// Recursive doubling over the largest power of two, `power`. Host h >= power lends its share to
// host h - power before the doubling and receives the result after it. For 6 hosts (power 4): 4
// gives to 0 and 5 to 1; then 0-1 and 2-3 exchange; then 0-2 and 1-3; then 0 answers 4 and 1
// answers 5.
#include "collectives/control/leader_plan.h"

#include <algorithm>
#include <cstddef>

namespace hora::collectives {

namespace {

int largest_power(int hosts) {
  int power = 1;
  while (power * 2 <= hosts) power *= 2;
  return power;
}

// The hosts whose shares a host below the power holds before the step of that distance: the hosts
// of its block, and those beyond the power that have lent theirs to that block.
std::vector<int> known(int host, int distance, int power, int hosts) {
  std::vector<int> all;
  const int first = host / distance * distance;
  for (int each = first; each < first + distance; ++each) all.push_back(each);
  for (int each = first; each < first + distance; ++each) {
    if (each + power < hosts) all.push_back(each + power);
  }
  return all;
}

}  // namespace

std::vector<LeaderStep> leader_steps(int host, int hosts) {
  const int power = largest_power(hosts);
  std::vector<LeaderStep> steps;
  if (host >= power) {
    // A lender sends its share and waits: what it gets back covers all hosts.
    std::vector<int> others = known(0, power, power, hosts);
    steps.push_back({host - power, true, false, false, {host}, {}});
    steps.push_back({host - power, false, true, true, {}, std::move(others)});
    return steps;
  }
  const bool lent = host + power < hosts;
  if (lent) steps.push_back({host + power, false, true, false, {}, {host + power}});
  for (int distance = 1; distance < power; distance *= 2) {
    // Flipping one bit pairs the two halves of a block; each side then covers both halves.
    const int peer = host ^ distance;
    steps.push_back({peer, true, true, false, known(host, distance, power, hosts),
                     known(peer, distance, power, hosts)});
  }
  if (lent) {
    steps.push_back({host + power, true, false, false, known(0, power, power, hosts), {}});
  }
  return steps;
}

// What a leader has kept in a step is complete after the later ones have returned; the peer gets it
// for what it kept itself.
std::vector<LeaderStep> returning_steps(std::vector<LeaderStep> steps) {
  std::reverse(steps.begin(), steps.end());
  for (LeaderStep& step : steps) step.result = true;
  return steps;
}

std::vector<int> leader_peers(int host, int hosts) {
  std::vector<int> peers;
  for (const LeaderStep& step : leader_steps(host, hosts)) peers.push_back(step.peer);
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

bool LeaderPlan::lends() const { return largest_power(hosts()) != hosts(); }

int LeaderPlan::most_members() const {
  std::size_t most = 0;
  for (const auto& each : members) most = std::max(most, each.size());
  return static_cast<int>(most);
}

LeaderPlan plan_leaders(const std::vector<std::int32_t>& hosts, int rank) {
  LeaderPlan plan;
  for (std::size_t each = 0; each < hosts.size(); ++each) {
    const auto host = static_cast<std::size_t>(hosts[each]);
    if (host >= plan.members.size()) plan.members.resize(host + 1);
    if (static_cast<int>(each) == rank) {
      plan.host = hosts[each];
      plan.place = static_cast<int>(plan.members[host].size());
    }
    plan.members[host].push_back(static_cast<std::int32_t>(each));
  }
  plan.steps = leader_steps(plan.host, plan.hosts());
  plan.peers = leader_peers(plan.host, plan.hosts());
  return plan;
}

}  // namespace hora::collectives
