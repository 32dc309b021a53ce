// SPDX-License-Identifier: Apache-2.0
// Carries the launcher's standard input to ranks, no faster than they read it.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class InputPump {
 public:
  // The most bytes on their way, per rank, that the agents have not delivered yet.
  static constexpr std::size_t kWindow = 64 * 1024;

  // `consume` gets bytes as they are read, and an empty view once, at the end of the input.
  // It answers how many copies are now on their way (the number of receiving ranks).
  // `on_begin` is called before it begins, or goes on, to read.
  InputPump(os::EventLoop& loop, int fd, std::function<int(std::string_view)> consume,
            std::function<void()> on_begin = {});
  ~InputPump();
  InputPump(const InputPump&) = delete;
  InputPump& operator=(const InputPump&) = delete;

  void start();
  // `bytes` of one rank's copy were delivered (or dropped, because the rank has ended).
  void delivered(std::size_t bytes);
  // After SIGCONT the terminal may be ours again. Otherwise that is found a little later.
  void reconsider();
  void stop();

 private:
  void update(bool refused = false);
  void look_again(bool wanted);
  void read_some();
  bool in_background() const;  // reading from the terminal would stop us

  os::EventLoop& loop_;
  int fd_;
  std::function<int(std::string_view)> consume_;
  std::function<void()> on_begin_;
  std::size_t in_flight_ = 0;
  int receivers_ = 1;
  bool started_ = false;
  bool finished_ = false;
  bool watched_ = false;
  bool pollable_ = true;  // a regular file is not: it is always ready
  os::EventLoop::TimerId retry_ = 0;
  os::EventLoop::TimerId look_again_ = 0;  // another process has the terminal
};

}  // namespace hora::launcher
