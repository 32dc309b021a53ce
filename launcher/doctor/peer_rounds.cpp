// SPDX-License-Identifier: Apache-2.0
#include "launcher/doctor/peer_rounds.h"

#include <algorithm>

namespace hora::launcher::doctor {

namespace {

constexpr int kMostRounds = 24;  // beyond so many hosts not every pair is measured
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
    // Limits the time: one measurement takes up to kPatience.
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
  const auto patience = waiting_.empty() ? std::chrono::milliseconds(0) : kPatience;
  timer_ = loop_.call_after(patience, [this] { advance(); });
}

}  // namespace hora::launcher::doctor
