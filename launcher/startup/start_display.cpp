// SPDX-License-Identifier: Apache-2.0
// Draws the board on the terminal's last line, several times a second, until the ranks work or
// something else is printed.
#include "launcher/startup/start_display.h"

namespace hora::launcher {

namespace {

// A start that is fast shows nothing.
constexpr std::chrono::milliseconds kQuietStart{400};
constexpr std::chrono::milliseconds kEvery{100};

}  // namespace

void StartDisplay::begin(os::EventLoop& loop, std::vector<std::string> names) {
  // The board is kept without a terminal as well: reports use it.
  board_.name_hosts(std::move(names));
  if (!line_.enabled()) return;
  loop.call_after(kQuietStart, [this, &loop] { tick(loop); });
}

void StartDisplay::reach(int host, Stage stage, std::string_view detail) {
  board_.reach(host, stage, detail, Clock::now());
}

// Unlike stop(), the line may come back: while the ranks find each other, it says who is missing.
void StartDisplay::ranks_run() {
  board_.stop(Clock::now());
  line_.clear();
}

void StartDisplay::stop() {
  board_.stop(Clock::now());
  hide();
}

void StartDisplay::hide() {
  hidden_ = true;
  line_.clear();
}

// Rearm first, so that every return below keeps the clock running.
void StartDisplay::tick(os::EventLoop& loop) {
  if (hidden_) return;
  loop.call_after(kEvery, [this, &loop] { tick(loop); });
  if (board_.stopped() && !board_.meeting()) return line_.clear();
  constexpr std::string_view kName = "horarun: ";
  const std::size_t width = line_.width();
  line_.show(std::string(kName) + board_.line(Clock::now(), width - kName.size()));
}

}  // namespace hora::launcher
