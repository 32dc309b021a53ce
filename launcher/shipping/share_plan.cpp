// SPDX-License-Identifier: Apache-2.0
// Every event changes the state of one host and ends in next(), which gives work to those that
// wait. So it makes no difference in which order events come.
#include "launcher/shipping/share_plan.h"

#include <algorithm>
#include <utility>

namespace hora::launcher {

namespace {

// Two peers at a time: more would share its link, and be served no earlier.
constexpr int kPeersAtATime = 2;
constexpr std::size_t kSources = 2;  // that a host learns of
// A source that fails is usually gone, or has a firewall; once may be bad luck.
constexpr int kMostRefusals = 2;
constexpr int kMostFailures = 3;

// ceil(log2(hosts)), at least 1: more sources at the start save a round or two, and this many still
// cost the launcher next to nothing.
int sends_for(int hosts) {
  int sends = 1;
  while (sends < 31 && (1L << sends) < hosts) ++sends;
  return sends;
}

}  // namespace

SharePlan::Steps SharePlan::want(int host, int hosts) {
  hosts_ = std::max(hosts_, hosts);
  shares_ =
      sharing_ == Sharing::kAlways || (sharing_ == Sharing::kAuto && hosts_ >= kLeastSharingHosts);
  members_[host] = Member{};
  waiting_.push_back(host);
  return next();
}

// A fetch that succeeds shows that hosts reach each other: earlier failures were single hosts'.
SharePlan::Steps SharePlan::ready(int host, bool serves) {
  const auto found = members_.find(host);
  if (found == members_.end()) return {};
  Member& member = found->second;
  if (member.state == State::kFetching) {
    end_fetch(member);
    failures_ = 0;
  } else if (member.state == State::kSending) {
    --sending_;
  } else {
    return {};
  }
  member.state = serves ? State::kServing : State::kDone;
  if (serves) serving_.emplace(member.load(), host);
  return next();
}

// It is not made to wait: it has lost time already. Other sources are tried once, as its trouble
// may be its own.
SharePlan::Steps SharePlan::failed(int host) {
  const auto found = members_.find(host);
  if (found == members_.end() || found->second.state != State::kFetching) return {};
  Member& member = found->second;
  std::vector<int> tried = member.sources;
  end_fetch(member);
  if (++failures_ >= kMostFailures) given_up_ = true;
  std::vector<int> others;
  if (member.tried.empty() && !given_up_) others = sources(tried);
  Steps steps;
  if (others.empty()) {
    steps.push_back(send(host));
  } else {
    member.tried = std::move(tried);
    begin_fetch(host, others);
    steps.push_back({host, std::move(others)});
  }
  return next(std::move(steps));
}

// No source's fault, so it says nothing of the others.
// It keeps the peers that it has; they will say how they fared.
void SharePlan::refuse(int source) {
  const auto found = members_.find(source);
  if (found == members_.end() || found->second.state != State::kServing) return;
  set_load(source, 0, +1);
  if (found->second.refusals < kMostRefusals) return;
  stop_serving(source, found->second);
  found->second.state = State::kDone;
}

// At any time, and also for hosts that have never asked.
SharePlan::Steps SharePlan::lost(int host) {
  const auto found = members_.find(host);
  if (found == members_.end()) return {};
  stop(host, found->second);
  // Hosts that fetch from it will report that it is gone.
  members_.erase(found);
  return next();
}

SharePlan::Steps SharePlan::give_up() {
  given_up_ = true;
  return next();
}

// Hosts that come later begin with the launcher again.
void SharePlan::forget() {
  for (const auto& [load, host] : serving_) members_[host].state = State::kDone;
  serving_.clear();
}

// It does not wait any more, and serves no host.
void SharePlan::stop(int host, Member& member) {
  switch (member.state) {
    case State::kWaiting:
      waiting_.erase(std::find(waiting_.begin(), waiting_.end(), host));
      break;
    case State::kSending:
      --sending_;
      break;
    case State::kFetching:
      end_fetch(member);
      break;
    case State::kServing:
      stop_serving(host, member);
      break;
    case State::kDone:
      break;
  }
}

void SharePlan::end_fetch(Member& member) {
  --fetching_;
  set_load(member.sources.front(), -1, 0);
  member.sources.clear();
}

SharePlan::Step SharePlan::send(int host) {
  ++sends_;
  ++sending_;
  members_[host].state = State::kSending;
  return {host, {}};
}

// The set is sorted by load, so a source leaves it and comes back with the new one. A host outside
// of it serves no other, and only its count changes.
void SharePlan::set_load(int source, int peers, int refusals) {
  const auto found = members_.find(source);
  if (found == members_.end()) return;
  Member& member = found->second;
  const bool serves = serving_.erase({member.load(), source}) > 0;
  member.peers += peers;
  member.refusals += refusals;
  if (serves) serving_.emplace(member.load(), source);
}

void SharePlan::stop_serving(int host, const Member& member) {
  serving_.erase({member.load(), host});
}

// The least busy one, and another for the case that the first is of no use. That is rare, so it
// does not count as a peer of the other.
std::vector<int> SharePlan::sources(const std::vector<int>& but) const {
  std::vector<int> found;
  for (auto each = serving_.begin(); each != serving_.end() && found.size() < kSources; ++each) {
    if (found.empty() && each->first >= kPeersAtATime) break;
    if (std::find(but.begin(), but.end(), each->second) == but.end()) found.push_back(each->second);
  }
  return found;
}

void SharePlan::begin_fetch(int host, std::vector<int> sources) {
  Member& member = members_[host];
  member.state = State::kFetching;
  set_load(sources.front(), +1, 0);
  member.sources = std::move(sources);
  ++fetching_;
}

// In the order of the hosts' requests. A free source comes before the launcher, whose few sends are
// for the time when there is none. Without either, the host waits for those that are getting the
// delivery now: their number is never 0 then, and each of them ends in an event.
SharePlan::Steps SharePlan::next(Steps steps) {
  const bool alone = !shares();
  while (!waiting_.empty()) {
    const int host = waiting_.front();
    std::vector<int> found = alone ? std::vector<int>() : sources();
    if (!found.empty()) {
      begin_fetch(host, found);
      steps.push_back({host, std::move(found)});
    } else if (alone || sends_ < sends_for(hosts_) || !more_will_serve()) {
      // If no host has it, and none will, the launcher sends it at any cost.
      steps.push_back(send(host));
    } else {
      break;
    }
    waiting_.pop_front();
  }
  return steps;
}

}  // namespace hora::launcher
