// SPDX-License-Identifier: Apache-2.0
// Keeps the start board and shows it: one living line on a terminal, at most ten times a second.
// On the event loop's thread; lives for as long as the loop runs, whose timer refers to it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/startup/live_line.h"
#include "launcher/startup/start_board.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class StartDisplay {
 public:
  // `write` gets what is to be on standard error.
  StartDisplay(Clock::time_point start, bool wanted, std::function<void(std::string)> write)
      : board_(start), line_(wanted, std::move(write)) {}

  void begin(os::EventLoop& loop, std::vector<std::string> names);
  void reach(int host, Stage stage, std::string_view detail = {});
  // The ranks run: the line goes, but for the time in which they meet and are silent.
  void ranks_run();
  // The start is over, or other output follows: removes the line for good.
  void stop();
  void hide();
  void clear() { line_.clear(); }  // makes room for a message; the line comes again

  const StartBoard& board() const { return board_; }

 private:
  void tick(os::EventLoop& loop);

  StartBoard board_;
  LiveLine line_;
  bool hidden_ = false;
};

}  // namespace hora::launcher
