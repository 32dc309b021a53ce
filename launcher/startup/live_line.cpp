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

constexpr std::size_t kLeastWidth = 19;  // a shorter piece of it says nothing, and wraps

bool is_terminal() {
  const char* kind = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && kind != nullptr && std::string_view(kind) != "dumb";
}

}  // namespace

LiveLine::LiveLine(bool wanted, std::function<void(std::string)> write)
    : write_(std::move(write)), enabled_(wanted && is_terminal()) {}

std::size_t LiveLine::width() const {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 79;
  return size.ws_col - 1u;
}

void LiveLine::show(const std::string& text) {
  if (!enabled_ || width() < kLeastWidth) return;
  shown_ = true;
  write_("\r" + text + "\033[K");
}

void LiveLine::clear() {
  if (!shown_) return;
  shown_ = false;
  write_("\r\033[K");
}

}  // namespace hora::launcher
