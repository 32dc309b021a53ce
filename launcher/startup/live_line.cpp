// SPDX-License-Identifier: Apache-2.0
// One line on the terminal that is overwritten in place. It is only shown on a real terminal,
// because its control characters would spoil a log file.
#include "launcher/startup/live_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace hora::launcher {

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

}  // namespace hora::launcher
