// SPDX-License-Identifier: Apache-2.0
// A state machine: step_ is the current step, sent_ says whether its message has gone out, and each
// peer has an inbox, because a peer may be one step or one turn ahead.
#include "collectives/control/leader_exchange.h"

#include <cstring>

namespace hora::collectives {

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
  // A message of a later turn tells this host that others wait for it (heard()).
  if (const std::uint64_t turn = word(message, 0); turn > turn_) heard_ = turn;
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
