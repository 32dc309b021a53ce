// What a Doctor measures between hosts, and what it lets all of them do together.
#include "launcher/doctor/doctor.h"
#include "launcher/doctor/findings.h"
#include "launcher/doctor/peer_addresses.h"

namespace hora::launcher::doctor {

namespace {

constexpr std::chrono::milliseconds kMeasuring{15'000};  // all rounds
constexpr std::chrono::milliseconds kFarewell{2'000};
constexpr std::size_t kMostDoubtful = 48;

}  // namespace

std::string Doctor::probe_line(int host, int peer) const {
  std::string line = "probe " + std::to_string(peer) + " " + std::to_string(patients_[peer].port) +
                     " " + patients_[peer].word;
  for (const std::string& address :
       addresses_towards(*examination_.hosts[host].hello, *examination_.hosts[peer].hello)) {
    line += " " + address;
  }
  return line;
}

// In round k everybody measures the way to the k-th next one, so no two measure the same way.
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

void Doctor::end_round_later() {
  loop_->call_after(kRound, [this, round = round_] {
    if (phase_ != Phase::kProbing || round != round_) return;
    for (Patient& patient : patients_) patient.waits_for_answer = false;
    proceed();
  });
}

// Somebody else's work may have been in the way of a measurement: what looks bad is measured once
// more, one way at a time, and the better numbers count.
void Doctor::look_again() {
  if (!looked_again_) {
    looked_again_ = true;
    doubtful_ = doubtful_ways(examination_);
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

// A host where libhora does not even work alone would keep the others waiting.
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
  // With a broken route between two of them there is nothing to learn but patience.
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
  phase_timer_ = loop_->call_after(kFarewell, [this] { loop_->stop(); });
  for (Patient& patient : patients_) {
    if (!patient.over) patient.link->send(FrameType::kTerminate, u32_payload(500));
  }
}

}  // namespace hora::launcher::doctor
