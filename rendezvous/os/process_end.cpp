// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/os/process_end.h"

#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace hora::os {

// A pidfd becomes readable when its process ends. Without one, the process is looked at several
// times a second.

namespace {

constexpr std::chrono::milliseconds kLookAgain{250};  // where the kernel has no pidfd

}  // namespace

ProcessEnd::ProcessEnd(EventLoop& loop, pid_t pid, std::function<void()> ended)
    : loop_(loop), pid_(pid), is_parent_(::getppid() == pid), ended_(std::move(ended)) {}

ProcessEnd::~ProcessEnd() {
  loop_.cancel(timer_);
  if (pidfd_.valid()) loop_.unwatch(pidfd_.get());
}

Result<std::unique_ptr<ProcessEnd>> ProcessEnd::watch(EventLoop& loop, pid_t pid,
                                                      std::function<void()> ended) {
  std::unique_ptr<ProcessEnd> self(new ProcessEnd(loop, pid, std::move(ended)));
  self->pidfd_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!self->pidfd_.valid()) {
    // Linux < 5.3, or a sandbox that refuses the call; or it has ended already.
    self->timer_ = loop.call_after({}, [raw = self.get()] { raw->look(); });
    return self;
  }
  HORA_TRY(loop.watch(self->pidfd_.get(), EPOLLIN,
                      [raw = self.get()](std::uint32_t) { raw->notify(); }));
  return self;
}

void ProcessEnd::look() {
  timer_ = 0;
  // A parent that has ended and was not waited for can still be sent a signal.
  const bool gone = is_parent_ ? ::getppid() != pid_ : ::kill(pid_, 0) != 0 && errno == ESRCH;
  if (gone) return notify();
  timer_ = loop_.call_after(kLookAgain, [this] { look(); });
}

void ProcessEnd::notify() {
  if (pidfd_.valid()) loop_.unwatch(pidfd_.get());
  pidfd_.reset();
  // Once: the callback may destroy this object, so nothing follows.
  std::exchange(ended_, nullptr)();
}

}  // namespace hora::os
