// SPDX-License-Identifier: Apache-2.0
#include "launcher/startup/start_display.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "rendezvous/base/time.h"

namespace hora::launcher {

// One line on the terminal that is overwritten in place. It is only shown on a real terminal,
// because its control characters would spoil a log file.

namespace {

// A shorter piece says nothing, and would wrap.
constexpr std::size_t kLeastWidth = 19;

bool is_terminal() {
  const char* kind = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && kind != nullptr && std::string_view(kind) != "dumb";
}

}  // namespace

LiveLine::LiveLine(bool wanted, std::function<void(std::string)> write)
    : write_(std::move(write)), enabled_(wanted && is_terminal()) {}

std::size_t LiveLine::width() const {
  winsize size{};
  // Without a known width, assume 80 columns. The last column stays free: some terminals wrap
  // there.
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 79;
  return size.ws_col - 1u;
}

void LiveLine::show(const std::string& text) {
  if (!enabled_ || width() < kLeastWidth) return;
  shown_ = true;
  // CSI K clears the rest of a longer line before.
  write_("\r" + text + "\033[K");
}

void LiveLine::clear() {
  if (!shown_) return;
  shown_ = false;
  write_("\r\033[K");
}

// Draws the board on the terminal's last line, several times a second, until the ranks work or
// something else is printed.

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

// Unlike stop(), the line may come back: while the ranks find each other, it names the missing
// ones.
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

// Two columns for each phase: the time since the start, and the time since the phase before.

std::string Timings::text() const {
  std::string text;
  auto before = start_;
  for (const auto& [phase, when] : marks_) {
    char figures[64];
    std::snprintf(figures, sizeof figures, "%10.3f ms  +%9.3f  ", fractional_ms(when - start_),
                  fractional_ms(when - before));
    text += figures + phase + "\n";
    before = when;
  }
  return text;
}

}  // namespace hora::launcher
