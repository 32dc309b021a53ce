// SPDX-License-Identifier: Apache-2.0
// The rounds of an examination: measuring between hosts, measuring doubtful links again, and one
// job over all hosts.
#include "launcher/doctor/doctor.h"
#include "launcher/doctor/findings.h"
#include "launcher/doctor/peer_addresses.h"

namespace hora::launcher::doctor {

namespace {

// For all rounds together.
constexpr std::chrono::milliseconds kMeasuring{15'000};
constexpr std::chrono::milliseconds kFarewell{2'000};
constexpr std::size_t kMostDoubtful = 48;

}  // namespace

// "probe PEER PORT WORD ADDRESS...": the word proves that the right host answers.
std::string Doctor::probe_line(int host, int peer) const {
  std::string line = "probe " + std::to_string(peer) + " " + std::to_string(patients_[peer].port) +
                     " " + patients_[peer].word;
  for (const std::string& address :
       addresses_towards(*examination_.hosts[host].hello, *examination_.hosts[peer].hello)) {
    line += " " + address;
  }
  return line;
}

// In round k, each host measures the link to its k-th neighbour, so no two measurements share a
// link.
void Doctor::begin_round() {
  ++round_;
  const int count = static_cast<int>(probers_.size());
  if (count < 2) return loop_->post([this] { proceed(); });
  for (int i = 0; i < count; ++i) {
    const int host = probers_[i];
    const int peer = probers_[(i + round_) % count];
    if (patients_[host].over || patients_[peer].over) continue;
    patients_[host].waits_for_answer = true;
    tell(host, probe_line(host, peer));
  }
  end_round_later();
}

// The round's number tells a late timer that its round is over.
void Doctor::end_round_later() {
  loop_->call_after(kRound, [this, round = round_] {
    if (phase_ != Phase::kProbing || round != round_) return;
    for (Patient& patient : patients_) patient.waits_for_answer = false;
    proceed();
  });
}

// Other work may have disturbed a measurement, so links that look bad are measured once more, one
// at a time, and the better numbers count.
void Doctor::look_again() {
  if (!looked_again_) {
    looked_again_ = true;
    doubtful_ = doubtful_ways(examination_);
    // Limits the time: one measurement takes up to a round.
    if (doubtful_.size() > kMostDoubtful) doubtful_.resize(kMostDoubtful);
  }
  while (!doubtful_.empty()) {
    const auto [host, peer] = doubtful_.back();
    doubtful_.pop_back();
    if (patients_[host].over || patients_[peer].over) continue;
    ++round_;
    patients_[host].waits_for_answer = true;
    tell(host, probe_line(host, peer));
    return end_round_later();
  }
  begin_world();
}

void Doctor::begin_probing() {
  phase_ = Phase::kProbing;
  loop_->cancel(phase_timer_);
  phase_timer_ = loop_->call_after(kMeasuring, [this] { begin_world(); });
  for (int host = 0; host < static_cast<int>(patients_.size()); ++host) {
    if (!patients_[host].over && patients_[host].port > 0) probers_.push_back(host);
  }
  begin_round();
}

// A host on which libhora does not even work alone would only keep the others waiting.
void Doctor::begin_world() {
  if (phase_ != Phase::kProbing) return;
  phase_ = Phase::kWorld;
  loop_->cancel(phase_timer_);
  std::vector<CommonWorld::Member> members;
  for (int host = 0; host < static_cast<int>(patients_.size()); ++host) {
    const HostExamination& seen = examination_.hosts[host];
    const Json& alone = member(seen.selftests, "alone");
    if (patients_[host].over || !alone.is_object() || alone.contains("error")) continue;
    members.push_back({host, seen.name, &*seen.hello, !local_[host]});
  }
  // If a route is broken, a common job would only time out.
  if (members.size() < 2 || !all_routes_work(examination_)) return finish_asking();
  world_ = std::make_unique<CommonWorld>(
      *loop_, std::move(members), spec_.network_interfaces,
      CommonWorld::Actions{
          [this](int host, const Probe& probe) { patients_[host].link->send(probe); },
          [this](int host, const std::string& line) { tell(host, line); },
          [this] {
            examination_.world = world_->result();
            finish_asking();
          }});
  world_->begin(patience() + kRound);
}

void Doctor::finish_asking() {
  if (phase_ == Phase::kFinishing) return;
  phase_ = Phase::kFinishing;
  loop_->cancel(phase_timer_);
  // The loop stops even if an agent does not answer.
  phase_timer_ = loop_->call_after(kFarewell, [this] { loop_->stop(); });
  for (Patient& patient : patients_) {
    if (!patient.over) patient.link->send(FrameType::kTerminate, u32_payload(500));
  }
}

}  // namespace hora::launcher::doctor
