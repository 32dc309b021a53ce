// SPDX-License-Identifier: Apache-2.0
// Reads stdin for the ranks within a window of bytes that they have not taken yet. Job control
// needs care: a launcher in the background must neither stop nor steal the shell's input.
#include "launcher/output/input_pump.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

#include "rendezvous/base/result.h"
#include "rendezvous/os/log.h"

namespace hora::launcher {

namespace {

// No signal says that the terminal is ours again: the shell's fg sends none to a job that runs.
constexpr std::chrono::milliseconds kLookAgain{200};

// With SIGTTIN blocked, a read in the background fails with EIO; otherwise the signal would stop
// the launcher, and its ranks would lose their lease.
ssize_t read_unstopped(int fd, char* to, std::size_t size) {
  sigset_t stop;
  sigset_t before;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTTIN);
  ::pthread_sigmask(SIG_BLOCK, &stop, &before);
  const ssize_t got = ::read(fd, to, size);
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return got;
}

// The ranks cannot distinguish it from the end. Only an input that was never there (nohup opens one
// for writing) ends like an empty one, and so does the terminal that has gone.
void report_error(int fd, int errnum) {
  struct stat info {};
  const bool is_device = ::fstat(fd, &info) == 0 && S_ISCHR(info.st_mode);
  if (errnum == EBADF || (errnum == EIO && is_device)) return;
  os::log_warn("horarun",
               errno_error(errnum, "reading standard input").message + "; the ranks get no more");
}

}  // namespace

InputPump::InputPump(os::EventLoop& loop, int fd, std::function<int(std::string_view)> consume,
                     std::function<void()> on_begin)
    : loop_(loop), fd_(fd), consume_(std::move(consume)), on_begin_(std::move(on_begin)) {}

InputPump::~InputPump() { stop(); }

void InputPump::start() {
  started_ = true;
  update();
}

void InputPump::stop() {
  finished_ = true;
  update();
}

void InputPump::reconsider() { update(); }

void InputPump::delivered(std::size_t bytes) {
  in_flight_ -= std::min(bytes, in_flight_);
  update();
}

// A terminal of another session is read like any other file.
bool InputPump::in_background() const {
  const pid_t foreground = ::isatty(fd_) == 1 ? ::tcgetpgrp(fd_) : -1;
  return foreground >= 0 && foreground != ::getpgrp();
}

void InputPump::look_again(bool wanted) {
  if (wanted == (look_again_ != 0)) return;
  if (!wanted) {
    loop_.cancel(look_again_);
    look_again_ = 0;
    return;
  }
  look_again_ = loop_.call_after(kLookAgain, [this] {
    look_again_ = 0;
    update();
  });
}

void InputPump::update(bool refused) {
  // Each receiver gets a copy, so the window grows with their number.
  const std::size_t window = kWindow * static_cast<std::size_t>(std::max(receivers_, 1));
  bool wanted = started_ && !finished_ && in_flight_ < window;
  const bool elsewhere = wanted && (refused || in_background());
  look_again(elsewhere);
  wanted = wanted && !elsewhere;
  // epoll refuses regular files; they are always readable, so a timer replaces the watch.
  if (!pollable_) {
    if (wanted && retry_ == 0) {
      retry_ = loop_.call_after({}, [this] {
        retry_ = 0;
        read_some();
      });
    } else if (!wanted && retry_ != 0) {
      loop_.cancel(retry_);
      retry_ = 0;
    }
    return;
  }
  if (wanted && !watched_) {
    if (on_begin_) on_begin_();
    if (loop_.watch(fd_, EPOLLIN, [this](std::uint32_t) { read_some(); })) {
      watched_ = true;
    } else {
      // EPERM: a regular file.
      pollable_ = false;
      update();
    }
  } else if (!wanted && watched_) {
    loop_.unwatch(fd_);
    watched_ = false;
  }
}

void InputPump::read_some() {
  std::array<char, 16 * 1024> chunk;
  const ssize_t got = read_unstopped(fd_, chunk.data(), chunk.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) {
    update();
    return;
  }
  // The shell has taken the terminal since the last look.
  if (got < 0 && errno == EIO && ::isatty(fd_) == 1) {
    update(true);
    return;
  }
  if (got <= 0) {
    if (got < 0) report_error(fd_, errno);
    finished_ = true;
    update();
    (void)consume_({});
    return;
  }
  const std::string_view bytes(chunk.data(), static_cast<std::size_t>(got));
  receivers_ = consume_(bytes);
  in_flight_ += bytes.size() * static_cast<std::size_t>(std::max(receivers_, 0));
  // No rank reads any more.
  if (receivers_ == 0) finished_ = true;
  update();
}

}  // namespace hora::launcher
