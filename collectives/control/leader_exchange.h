// SPDX-License-Identifier: Apache-2.0
// How the leaders of several hosts agree on one turn of the fast path and pass on what their hosts
// have posted. Each step of leader_plan.h is one message. The caller sends the messages.
// [pure]
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/control/leader_plan.h"

namespace hora::collectives {

class LeaderExchange {
 public:
  // What travels beside the number, as long as all have brought the same one. The caller owns it.
  class Payload {
   public:
    // Called before the first step (bring) and after the last one (finish).
    virtual void bring() = 0;
    virtual void finish() = 0;
    // Whether each host reduces a share, which returning_steps() give to the others.
    virtual bool in_shares() const = 0;
    // Appends to `message` what the step sends.
    virtual void give(const LeaderStep& step, std::string& message) = 0;
    // False when the bytes are not what the step receives.
    virtual bool take(const LeaderStep& step, std::string_view bytes) = 0;

   protected:
    ~Payload() = default;
  };

  LeaderExchange(std::vector<LeaderStep> steps, std::function<void(int, std::string_view)> send);

  // Accepts a message from the leader of a host, possibly ahead of its step.
  void arrived(int host, std::string message);
  // The latest turn, beyond all those begun here, that another leader has begun; 0: none.
  std::uint64_t heard() const { return heard_; }

  // `number` is 0 when this host's ranks have brought different ones.
  void begin(std::uint64_t turn, std::uint64_t number);
  bool running() const { return running_; }
  // True when go_on() can take a step: the exchange has just begun, or the message it waits for is
  // here.
  bool can_go_on() const;
  // Takes as many steps as it can. `load` is the same object for the whole turn, and unused while
  // the number is 0. False when a message is malformed.
  bool go_on(Payload* load);
  // The outcome of the latest exchange: the number that all have brought; 0 when they differ.
  std::uint64_t number() const { return number_; }

 private:
  void send(const LeaderStep& step, Payload* load);
  bool take(const LeaderStep& step, Payload* load);

  // Those that decide, then those that return shares.
  std::vector<LeaderStep> steps_;
  std::size_t deciding_;
  std::function<void(int, std::string_view)> send_;
  std::map<int, std::deque<std::string>> inbox_;  // by host
  std::uint64_t turn_ = 0;
  std::uint64_t number_ = 0;
  std::uint64_t heard_ = 0;
  bool running_ = false;
  bool brought_ = false;
  bool sent_ = false;  // the current step's message has gone out
  std::size_t step_ = 0;
  std::string message_;
};

}  // namespace hora::collectives
