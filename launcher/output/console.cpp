// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "launcher/output/user_terminal.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

std::size_t console_width() {
  winsize size{};
  if (::isatty(STDERR_FILENO) != 1) return 0;
  // Without a known width, assume 80 columns.
  const bool is_known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0;
  return is_known ? size.ws_col : 80;
}

// A full disk or a reader that is gone does not end a job because of our own messages, so errors
// are ignored here.
Console::Console(os::EventLoop& loop, int fd, std::atomic<bool>* row_is_open)
    : fd_(fd),
      row_is_open_(::isatty(fd) == 1 ? row_is_open : nullptr),
      writer_(loop, OutputWriter::Wake::kAtOnce,
              {[this](int, std::size_t bytes) {
                 std::lock_guard lock(mutex_);
                 held_ -= bytes;
               },
               [this](int, int errnum) { broken_ = errnum; }}) {}

void Console::say(std::string text) {
  if (text.empty()) return;
  if (row_is_open_ != nullptr && row_is_open_->exchange(false)) text.insert(0, 1, '\n');
  if (text.size() > kMostHeld) text = shortened(text, kMostHeld / 2) + "\n";
  std::lock_guard lock(mutex_);
  // Drops messages instead of blocking when nothing reads the terminal, and says so later.
  if (held_ + text.size() > kMostHeld) {
    ++lost_;
    ++all_lost_;
    return;
  }
  if (lost_ > 0) {
    text.insert(0, "warn horarun: " + std::to_string(lost_) +
                       " messages are missing here: standard error was not read in time\n");
    lost_ = 0;
  }
  text = with_returns(fd_, std::move(text));
  const std::size_t size = text.size();
  held_ += size;
  writer_.write(fd_, std::move(text), 0, size);
}

void Console::flush(std::function<void()> done) {
  writer_.settle(fd_);
  writer_.flush(std::move(done));
}

std::string Console::loss() {
  // A reader that has closed it, or has stopped reading, wants no more.
  if (broken_ != 0 && broken_ != EPIPE && broken_ != EBADF)
    return std::system_category().message(broken_);
  std::lock_guard lock(mutex_);
  return all_lost_ == 0
             ? std::string()
             : std::to_string(all_lost_) + " messages, because standard error was not read in time";
}

}  // namespace hora::launcher
