// Keeps the start board and shows it: one living line on a terminal, at most ten times a second.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/live_line.h"
#include "launcher/start_board.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class StartDisplay {
 public:
  StartDisplay(os::Clock::time_point start, bool wanted) : board_(start), line_(wanted) {}

  void begin(os::EventLoop& loop, std::vector<std::string> names);
  void reach(int host, Stage stage, std::string_view detail = {});
  // The ranks run, or it is over: the line goes, the board stays as it is.
  void stop();

  const StartBoard& board() const { return board_; }

 private:
  void tick(os::EventLoop& loop);

  StartBoard board_;
  LiveLine line_;
};

}  // namespace hora::launcher
