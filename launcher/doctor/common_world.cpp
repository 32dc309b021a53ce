// SPDX-License-Identifier: Apache-2.0
#include "launcher/doctor/common_world.h"

#include <algorithm>

#include "launcher/doctor/findings.h"
#include "launcher/machine/host_facts.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/random.h"

namespace hora::launcher::doctor {

namespace {

constexpr int kMostRounds = 24;  // beyond this number of hosts not every pair is measured
constexpr std::size_t kMostDoubtful = 48;

}  // namespace

PeerRounds::PeerRounds(os::EventLoop& loop, std::vector<int> hosts, Handlers handlers)
    : loop_(loop), hosts_(std::move(hosts)), handlers_(std::move(handlers)) {}

// By way of the loop: with nothing to measure it is done at once.
void PeerRounds::begin() {
  timer_ = loop_.call_after(std::chrono::milliseconds(0), [this] { advance(); });
}

void PeerRounds::on_answer(int host) {
  if (waiting_.erase(host) == 0 || !waiting_.empty()) return;
  loop_.cancel(timer_);
  advance();
}

void PeerRounds::advance() {
  waiting_.clear();
  const int rounds = std::min(static_cast<int>(hosts_.size()) - 1, kMostRounds);
  if (round_ < rounds) return begin_round();
  measure_doubtful();
}

// In round k, each host measures the link to its k-th neighbour, so no two
// measurements share a link.
void PeerRounds::begin_round() {
  ++round_;
  const auto count = hosts_.size();
  for (std::size_t i = 0; i < count; ++i) {
    const int peer = hosts_[(i + static_cast<std::size_t>(round_)) % count];
    if (handlers_.measure(hosts_[i], peer)) waiting_.insert(hosts_[i]);
  }
  wait();
}

// Other work may have disturbed a measurement, so links that look bad are
// measured once more, one at a time, and the better numbers count.
void PeerRounds::measure_doubtful() {
  if (!doubtful_) {
    doubtful_ = handlers_.doubtful();
    // Limits the time: one measurement takes up to kTimeout.
    if (doubtful_->size() > kMostDoubtful) doubtful_->resize(kMostDoubtful);
  }
  while (!doubtful_->empty()) {
    const auto [host, peer] = doubtful_->back();
    doubtful_->pop_back();
    if (!handlers_.measure(host, peer)) continue;
    waiting_.insert(host);
    return wait();
  }
  // The handler may destroy this object.
  const auto done = std::move(handlers_.done);
  done();
}

// A round whose hosts are all gone is over at once, too.
void PeerRounds::wait() {
  const auto timeout = waiting_.empty() ? std::chrono::milliseconds(0) : kTimeout;
  timer_ = loop_.call_after(timeout, [this] { advance(); });
}

// Runs one small job over all hosts: choose a network, start a rendezvous, let the agents' doctors
// meet there. It finishes once, with whatever is known by then.

namespace {

// Reads from libhora's error which ranks are missing. The C interface of libhora has no other way
// to say it.
std::vector<std::size_t> missing_ranks(const std::string& error) {
  constexpr std::string_view kWords = "waiting for rank";
  const std::size_t at = error.find(kWords);
  std::vector<std::size_t> ranks;
  if (at == std::string::npos) return ranks;
  std::string list = error.substr(at + kWords.size());
  if (list.rfind("s", 0) == 0) list.erase(0, 1);
  for (const std::string_view word :
       split(list.substr(0, list.find_first_not_of("0123456789, ")), ',')) {
    if (const auto rank = parse_int<std::size_t>(trim(word))) ranks.push_back(*rank);
  }
  return ranks;
}

// One rank per host.
Plan plan_of(const std::vector<CommonWorld::Member>& members) {
  Plan plan;
  plan.world_size = static_cast<int>(members.size());
  for (int rank = 0; rank < plan.world_size; ++rank) {
    plan.hosts.push_back({{members[rank].name, "", 1}, rank, {{rank, 0, rank, plan.world_size}}});
  }
  return plan;
}

}  // namespace

CommonWorld::CommonWorld(os::EventLoop& loop, std::vector<Member> members,
                         std::vector<std::string> wanted, Actions actions)
    : loop_(loop),
      members_(std::move(members)),
      wanted_(std::move(wanted)),
      actions_(std::move(actions)) {
  result_["ranks"] = members_.size();
}

// The parts of a launch find the network, so the doctor fails where a job would fail.
void CommonWorld::begin(std::chrono::milliseconds timeout) {
  timer_ = loop_.call_after(timeout, [this] { finish(); });
  std::vector<NetworkSurvey::Member> members;
  for (const Member& member : members_) members.push_back({member.host, member.network});
  survey_ = std::make_unique<NetworkSurvey>(
      std::move(members), host_network("the launcher's machine", describe_machine(), false),
      wanted_, NetworkSurvey::Handlers{actions_.probe, [this](NetworkSurvey::Choice choice) {
                                         if (!over_) on_network(std::move(choice));
                                       }});
  survey_->begin();
}

void CommonWorld::on_probe_result(int host, ProbeResult result) {
  survey_->on_result(host, std::move(result));
}

void CommonWorld::on_network(NetworkSurvey::Choice choice) {
  if (const auto* failure = std::get_if<Failure>(&choice)) return give_up(failure->message);
  const auto& network = std::get<NetworkChoice>(choice);
  const std::string token = os::random_token();
  auto meeting = JobRendezvous::start(loop_, plan_of(members_), network.listen_addresses,
                                      job_access(token, {}));
  if (!meeting) return give_up("the rendezvous: " + meeting.error().message);
  rendezvous_ = std::move(*meeting);
  const std::string job = os::random_token();
  // The line is read by apps/doctor; all its words are free of blanks.
  for (std::size_t rank = 0; rank < members_.size(); ++rank) {
    const HostRoute& route = network.hosts[rank];
    actions_.send_line(members_[rank].host,
                       "world " + std::to_string(rank) + " " + std::to_string(members_.size()) +
                           " " + members_[rank].name + " " + job + " " + route.rendezvous_address +
                           " " + std::to_string(rendezvous_->port()) + " " + token + " " +
                           route.interface);
  }
}

void CommonWorld::on_answer(int host, Json answer) {
  answers_[host] = std::move(answer);
  finish_if_complete();
}

// A host that is lost counts as answered, so the others need not wait for it.
void CommonWorld::on_lost(int host) {
  if (over_) return;
  Json lost;
  lost["error"] = "the host was lost";
  answers_.try_emplace(host, std::move(lost));
  survey_->on_lost(host);
  finish_if_complete();
}

void CommonWorld::give_up(const std::string& error) {
  result_["error"] = error;
  finish();
}

void CommonWorld::finish_if_complete() {
  const bool complete = std::all_of(members_.begin(), members_.end(), [this](const Member& member) {
    return answers_.count(member.host) > 0;
  });
  if (complete) finish();
}

// The deadline and the last answer may both lead here.
void CommonWorld::finish() {
  if (over_) return;
  over_ = true;
  loop_.cancel(timer_);
  for (const Member& member : members_) {
    if (result_.contains("error")) break;
    const auto answer = answers_.find(member.host);
    Json failed;
    if (answer == answers_.end()) {
      failed["error"] = "no answer in time";
    } else if (!doctor::member(answer->second, "error").is_null()) {
      failed = answer->second;
    } else {
      const Json& seconds = doctor::member(answer->second, "seconds");
      if (!result_.contains("seconds"))
        result_["seconds"] = seconds.is_number() ? seconds.get<double>() : 0.0;
      const Json& backends = doctor::member(answer->second, "backends");
      result_["backends"] = backends.is_array() ? backends : Json::array();
      continue;
    }
    // The ranks that others waited for are the likely culprits.
    for (const std::size_t rank : missing_ranks(text_in(failed, "error"))) {
      if (rank < members_.size()) result_["missing"].push_back(members_[rank].name);
    }
    result_["failed"][member.name] = std::move(failed);
  }
  // The caller may destroy this object in done(), so it runs in a turn of its own.
  loop_.post([done = actions_.done] { done(); });
}

}  // namespace hora::launcher::doctor
