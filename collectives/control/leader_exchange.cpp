// SPDX-License-Identifier: Apache-2.0
#include "collectives/control/leader_exchange.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace hora::collectives {

// Recursive doubling over the largest power of two, `power`. Host h >= power gives its share to
// host h - power before the doubling and receives the result after it. For 6 hosts (power 4): 4
// gives to 0 and 5 to 1; then 0-1 and 2-3 exchange; then 0-2 and 1-3; then 0 answers 4 and 1
// answers 5.

namespace {

int largest_power(int hosts) {
  int power = 1;
  while (power * 2 <= hosts) power *= 2;
  return power;
}

// The hosts whose shares a host below the power holds before the step of that distance: the hosts
// of its block, and those beyond the power that have given theirs to that block.
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
  const bool has_partner = host + power < hosts;
  if (has_partner) steps.push_back({host + power, false, true, false, {}, {host + power}});
  for (int distance = 1; distance < power; distance *= 2) {
    // Flipping one bit pairs the two halves of a block; each side then covers both halves.
    const int peer = host ^ distance;
    steps.push_back({peer, true, true, false, known(host, distance, power, hosts),
                     known(peer, distance, power, hosts)});
  }
  if (has_partner) {
    steps.push_back({host + power, true, false, false, known(0, power, power, hosts), {}});
  }
  return steps;
}

// The share that a leader has kept in a step is complete after the later ones have returned; the
// peer gets it in exchange for its own.
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

bool LeaderPlan::has_partners() const { return largest_power(hosts()) != hosts(); }

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

// A state machine: step_ is the current step, sent_ says whether its message has gone out, and each
// peer has an inbox, because a peer may be one step or one turn ahead.

namespace {

// The head of every message: turn and number in the machine's byte order, before the payload. The
// payload is raw tensor elements, so both ends have to agree on the byte order anyway.
constexpr std::size_t kHead = 2 * sizeof(std::uint64_t);

std::uint64_t word(std::string_view message, std::size_t index) {
  std::uint64_t value = 0;
  if (message.size() >= kHead) {
    std::memcpy(&value, message.data() + index * sizeof value, sizeof value);
  }
  return value;
}

}  // namespace

LeaderExchange::LeaderExchange(std::vector<LeaderStep> steps,
                               std::function<void(int, std::string_view)> send)
    : steps_(std::move(steps)), deciding_(steps_.size()), send_(std::move(send)) {
  const std::vector<LeaderStep> returning = returning_steps(steps_);
  steps_.insert(steps_.end(), returning.begin(), returning.end());
}

void LeaderExchange::arrived(int host, std::string message) {
  // A message of a later turn shows this host that others wait for it (received()).
  if (const std::uint64_t turn = word(message, 0); turn > turn_) received_ = turn;
  inbox_[host].push_back(std::move(message));
}

void LeaderExchange::begin(std::uint64_t turn, std::uint64_t number) {
  turn_ = turn;
  number_ = number;
  step_ = 0;
  sent_ = false;
  brought_ = false;
  running_ = true;
}

bool LeaderExchange::can_go_on() const {
  if (!running_ || steps_.empty()) return running_;
  const LeaderStep& step = steps_[step_];
  if (step.sends && !sent_) return true;
  const auto found = inbox_.find(step.peer);
  return found != inbox_.end() && !found->second.empty();
}

// Without a number there is nothing to give, but the peer waits for the message all the same.
void LeaderExchange::send(const LeaderStep& step, Payload* load) {
  message_.assign(reinterpret_cast<const char*>(&turn_), sizeof turn_);
  message_.append(reinterpret_cast<const char*>(&number_), sizeof number_);
  if (number_ != 0) load->give(step, message_);
  send_(step.peer, message_);
  sent_ = true;
}

// False when the message is malformed.
bool LeaderExchange::take(const LeaderStep& step, Payload* load) {
  std::deque<std::string>& inbox = inbox_[step.peer];
  const std::string message = std::move(inbox.front());
  inbox.pop_front();
  // Messages of one peer arrive in order, so the first one must belong to this turn and step.
  if (message.size() < kHead || word(message, 0) != turn_) return false;
  if (word(message, 1) != number_) {
    // All have decided on the number by then.
    if (step_ >= deciding_) return false;
    // One difference anywhere makes the number 0 from here on. The steps still run, without
    // payload, so that every leader learns it and no peer is left waiting.
    number_ = 0;
  }
  return number_ == 0 || load->take(step, std::string_view(message).substr(kHead));
}

bool LeaderExchange::go_on(Payload* load) {
  if (!brought_ && number_ != 0) load->bring();
  brought_ = true;
  const auto end = [&] { return number_ != 0 && load->in_shares() ? steps_.size() : deciding_; };
  for (; step_ < end(); ++step_, sent_ = false) {
    const LeaderStep& step = steps_[step_];
    if (step.sends && !sent_) send(step, load);
    if (!step.receives) continue;
    if (inbox_[step.peer].empty()) return true;
    if (!take(step, load)) return false;
  }
  if (number_ != 0) load->finish();
  running_ = false;
  return true;
}

}  // namespace hora::collectives
