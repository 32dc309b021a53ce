// SPDX-License-Identifier: Apache-2.0
// Measures the links between hosts: in rounds, in each of which every host
// measures one other, and then those that look bad once more, one at a time. On
// the event loop's thread.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "rendezvous/os/event_loop.h"

namespace hora::launcher::doctor {

class PeerRounds {
 public:
  using Way = std::pair<int, int>;  // from host to peer
  struct Handlers {
    // Answered by on_answer(). False: one of the two takes part no longer.
    std::function<bool(int host, int peer)> measure;
    std::function<std::vector<Way>()> doubtful;  // asked for once, after the rounds
    std::function<void()> done;                  // once, unless this object is destroyed before
  };
  // How long a measurement may take.
  static constexpr std::chrono::milliseconds kPatience{3'000};

  PeerRounds(os::EventLoop& loop, std::vector<int> hosts, Handlers handlers);
  ~PeerRounds() { loop_.cancel(timer_); }
  PeerRounds(const PeerRounds&) = delete;
  PeerRounds& operator=(const PeerRounds&) = delete;

  void begin();
  void on_answer(int host);
  void on_lost(int host) { on_answer(host); }

 private:
  void advance();
  void begin_round();
  void measure_doubtful();
  void wait();

  os::EventLoop& loop_;
  std::vector<int> hosts_;
  Handlers handlers_;
  int round_ = 0;
  std::optional<std::vector<Way>> doubtful_;  // once the rounds are over
  std::set<int> waiting_;                     // hosts whose answers are still to come
  os::EventLoop::TimerId timer_ = 0;
};

}  // namespace hora::launcher::doctor
