// SPDX-License-Identifier: Apache-2.0
#include "launcher/fleet/network_survey.h"

#include <utility>

namespace hora::launcher {

NetworkSurvey::NetworkSurvey(std::vector<Member> members, HostNetwork own,
                             std::vector<std::string> wanted, Handlers handlers, WayBack way_back)
    : members_(std::move(members)),
      own_(std::move(own)),
      wanted_(std::move(wanted)),
      handlers_(std::move(handlers)),
      way_back_(way_back) {}

std::vector<HostNetwork> NetworkSurvey::networks() const {
  std::vector<HostNetwork> out;
  for (const Member& member : members_) out.push_back(member.network);
  return out;
}

void NetworkSurvey::begin() {
  const auto probes = candidate_probes(networks(), wanted_);
  for (std::size_t i = 0; i < members_.size() && i < probes.size(); ++i) {
    if (probes[i].targets.empty()) continue;
    waiting_.insert(members_[i].host);
    handlers_.probe(members_[i].host, probes[i]);
  }
  choose_if_complete();
}

void NetworkSurvey::on_result(int host, ProbeResult result) {
  if (waiting_.erase(host) == 0) return;
  answers_[host] = std::move(result);
  choose_if_complete();
}

void NetworkSurvey::on_lost(int host) {
  if (waiting_.erase(host) > 0) choose_if_complete();
}

void NetworkSurvey::choose_if_complete() {
  if (over_ || !waiting_.empty()) return;
  over_ = true;
  std::vector<ProbeResult> answers;
  for (const Member& member : members_) answers.push_back(std::move(answers_[member.host]));
  // The handler may destroy this object.
  const auto done = std::move(handlers_.done);
  done(choose_network(networks(), own_, wanted_, answers, Hosts::kFixed, way_back_));
}

}  // namespace hora::launcher
