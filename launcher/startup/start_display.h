// SPDX-License-Identifier: Apache-2.0
// Shows the start of a job: one line on a terminal that is rewritten, and the phases that --timings
// prints.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/startup/start_board.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

// One line on a terminal that is written over and gone at the end: the progress of a start.
// Nothing at all is written elsewhere. One thread at a time.

class LiveLine {
 public:
  // `wanted`: the user has not asked for JSON or a log instead.
  LiveLine(bool wanted, std::function<void(std::string)> write);
  ~LiveLine() { clear(); }
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  bool enabled() const { return enabled_; }
  std::size_t width() const;
  void show(const std::string& text);
  void clear();

 private:
  std::function<void(std::string)> write_;
  bool enabled_;
  bool shown_ = false;
};

// Keeps the start board and shows it: one living line on a terminal, at most ten times a second.
// On the event loop's thread; lives for as long as the loop runs, whose timer refers to it.

class StartDisplay {
 public:
  // `write` gets what is to be on standard error.
  StartDisplay(Clock::time_point start, bool wanted, std::function<void(std::string)> write)
      : board_(start), line_(wanted, std::move(write)) {}

  void begin(os::EventLoop& loop, std::vector<std::string> names);
  void reach(int host, Stage stage, std::string_view detail = {});
  void note_sent(int host, std::size_t bytes) { board_.note_sent(host, bytes); }
  // The ranks run: the line goes, but for the time in which they meet and are silent.
  void ranks_run();
  // The start is over, or other output follows: removes the line for good.
  void stop();
  void hide();
  void clear() { line_.clear(); }  // makes room for a message; the line comes again

  const StartBoard& board() const { return board_; }
  bool is_shown() const { return line_.enabled() && !hidden_ && board_.meeting(); }
  // Of a terminal whose last row may be drawn again; 0: there is none.
  std::size_t live_width() const { return line_.enabled() ? line_.width() : 0; }

 private:
  void tick(os::EventLoop& loop);

  StartBoard board_;
  LiveLine line_;
  bool hidden_ = false;
};

// When each phase of a launch was reached: what --timings prints. One thread at a time.

class Timings {
 public:
  Timings() : start_(Clock::now()) {}

  Clock::time_point start() const { return start_; }
  void mark(std::string phase) { marks_.emplace_back(std::move(phase), Clock::now()); }
  const std::vector<std::pair<std::string, Clock::time_point>>& marks() const { return marks_; }
  // One line per phase: milliseconds since the start, since the phase before, name.
  std::string text() const;

 private:
  Clock::time_point start_;
  std::vector<std::pair<std::string, Clock::time_point>> marks_;
};

}  // namespace hora::launcher
