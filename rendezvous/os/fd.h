// SPDX-License-Identifier: Apache-2.0
// File descriptors and system calls that are interrupted.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "rendezvous/base/time.h"

namespace hora::os {

// Tries again what the kernel refuses for the moment.

// Calls `attempt`, which returns 0 or an errno, until it returns something other than EAGAIN or the
// deadline has passed; returns its last answer. This is for resources that the whole machine
// shares: threads, ports, routes. No descriptor becomes ready when one is free, so the caller
// pauses, a millisecond at first and at most a tenth of a second.
template <typename Attempt>
int retry_while_refused(Attempt&& attempt, Deadline deadline) {
  constexpr std::chrono::milliseconds kLongestPause{100};
  std::chrono::milliseconds pause{1};
  for (;;) {
    const int refused = attempt();
    if (refused != EAGAIN) return refused;
    const auto now = Clock::now();
    if (now >= deadline) return refused;
    std::this_thread::sleep_for(std::min<Clock::duration>(pause, deadline - now));
    pause = std::min(pause * 2, kLongestPause);
  }
}

// For a write to a non-blocking socket: whether the kernel has no room for it now. The caller has
// to try again later; a stream that dropped the bytes instead would have a gap.

inline bool would_block(int errnum) {
  return errnum == EAGAIN || errnum == EWOULDBLOCK || errnum == ENOBUFS || errnum == ENOMEM;
}

// A file descriptor with one owner.

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset();  // closes; EINTR counts as closed (Linux)
  // The same for what was written to: a network file system, or a quota, may refuse only now what
  // it took before. Answers that errno; 0: none.
  [[nodiscard]] int close();

 private:
  int fd_ = -1;
};

// A pipe with one owner; child processes do not inherit it.

struct Pipe {
  Fd read_end, write_end;

  // `flags`: O_NONBLOCK or 0, for both ends. False: errno says why.
  bool open(int flags = 0) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | flags) != 0) return false;
    read_end = Fd(ends[0]);
    write_end = Fd(ends[1]);
    return true;
  }
};

}  // namespace hora::os
