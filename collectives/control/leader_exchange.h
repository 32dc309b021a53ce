// How the leaders of several hosts agree on one turn of the fast path, and pass on what their hosts
// have brought: the steps of leader_plan.h, each a message. The messages come and go elsewhere.
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
  // What is passed on beside the number, while all have brought the same one.
  class Payload {
   public:
    // Before the first step, and after the last one.
    virtual void bring() = 0;
    virtual void finish() = 0;
    // Appends to `message` what the step gives.
    virtual void give(const LeaderStep& step, std::string& message) = 0;
    // False: this is not what the step gets.
    virtual bool take(const LeaderStep& step, std::string_view bytes) = 0;

   protected:
    ~Payload() = default;
  };

  LeaderExchange(std::vector<LeaderStep> steps, std::function<void(int, std::string_view)> send)
      : steps_(std::move(steps)), send_(std::move(send)) {}

  // A message from the leader of a host.
  void arrived(int host, std::string message);
  // The turn, beyond all that were begun here, that some leader is known to have begun; 0: none.
  std::uint64_t heard() const { return heard_; }

  // `number` 0: this host's ranks have not all brought the same.
  void begin(std::uint64_t turn, std::uint64_t number);
  bool running() const { return running_; }
  // A message has come that it waits for, or it has just begun.
  bool can_go_on() const;
  // As far as it goes. `load` is the same for all of a turn, and not touched when the number is 0.
  // False: a message made no sense.
  bool go_on(Payload* load);
  // Of the exchange that ended last: what all have brought; 0 when they differ.
  std::uint64_t number() const { return number_; }

 private:
  std::vector<LeaderStep> steps_;
  std::function<void(int, std::string_view)> send_;
  std::map<int, std::deque<std::string>> inbox_;  // by host
  std::uint64_t turn_ = 0;
  std::uint64_t number_ = 0;
  std::uint64_t heard_ = 0;
  bool running_ = false;
  bool brought_ = false;
  bool sent_ = false;  // in the present step
  std::size_t step_ = 0;
  std::string message_;
};

}  // namespace hora::collectives
