// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/user_terminal.h"

#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

namespace hora::launcher {

namespace {

termios former{};
std::atomic<bool> is_raw{false};

bool is_ours() { return ::isatty(STDIN_FILENO) == 1 && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp(); }

}  // namespace

TerminalSize size_of_terminal() {
  for (const int fd : {STDOUT_FILENO, STDIN_FILENO, STDERR_FILENO}) {
    winsize size{};
    if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_row != 0 && size.ws_col != 0) {
      return {size.ws_row, size.ws_col};
    }
  }
  return {};
}

void make_terminal_raw() {
  if (!is_ours()) return;
  if (!is_raw) {  // else the shell may have changed it since
    if (::tcgetattr(STDIN_FILENO, &former) != 0) return;
    static const int at_exit = std::atexit(restore_terminal);
    (void)at_exit;
  }
  termios raw = former;
  ::cfmakeraw(&raw);
  if (::tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0) is_raw = true;
}

void restore_terminal() {
  // Not TCSADRAIN: a terminal that is not read would keep the job from its end.
  if (is_raw.exchange(false) && is_ours()) (void)::tcsetattr(STDIN_FILENO, TCSANOW, &former);
}

std::string with_returns(int fd, std::string text) {
  if (!is_raw || ::isatty(fd) != 1) return text;
  std::string out;
  out.reserve(text.size() + 16);
  for (const char byte : text) {
    if (byte == '\n' && !out.ends_with('\r')) out += '\r';
    out += byte;
  }
  return out;
}

}  // namespace hora::launcher
