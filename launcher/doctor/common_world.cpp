// SPDX-License-Identifier: Apache-2.0
// Runs one small job over all hosts: choose a network, start a rendezvous, let the agents' doctors
// meet there. It finishes once, with whatever is known by then.
#include "launcher/doctor/common_world.h"

#include <algorithm>

#include "launcher/agent/host_facts.h"
#include "launcher/doctor/findings.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/random.h"

namespace hora::launcher::doctor {

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
void CommonWorld::begin(std::chrono::milliseconds patience) {
  timer_ = loop_.call_after(patience, [this] { finish(); });
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
    actions_.tell(members_[rank].host,
                  "world " + std::to_string(rank) + " " + std::to_string(members_.size()) + " " +
                      members_[rank].name + " " + job + " " + route.rendezvous_address + " " +
                      std::to_string(rendezvous_->port()) + " " + token + " " + route.interface);
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
