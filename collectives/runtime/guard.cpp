#include "collectives/runtime/guard.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rendezvous/os/quiet_thread.h"

namespace hora::collectives {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookEvery{250};
// A guard has nothing else to do than to answer; so much is for a machine that has.
constexpr milliseconds kAnswerPatience{1500};
// A guard that looks so late was stopped itself, or its whole job was.
constexpr milliseconds kOverslept{1000};

}  // namespace

Guard::Guard(std::vector<int> fds, OnBreak on_break, std::optional<LifeSigns> signs,
             milliseconds limit, int rank)
    : fds_(std::move(fds)),
      on_break_(std::move(on_break)),
      signs_(std::move(signs)),
      limit_(limit),
      rank_(rank),
      next_look_(Clock::now()),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_(os::start_quiet_thread("hora-guard", [this] { watch(); })) {}

void Guard::stop() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void Guard::watch() {
  std::vector<pollfd> fds{{stop_.get(), POLLIN, 0}, {signs_ ? signs_->fd() : -1, POLLIN, 0}};
  for (int fd : fds_) fds.push_back({fd, POLLRDHUP, 0});
  while (true) {
    if (::poll(fds.data(), fds.size(), signs_ ? static_cast<int>(kLookEvery.count()) : -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (fds[0].revents != 0) return;
    for (std::size_t i = 2; i < fds.size(); ++i) {
      if (fds[i].revents != 0) return on_break_({});
    }
    if (!signs_) continue;
    const auto now = Clock::now();
    signs_->hear(now);
    if (now < next_look_) continue;
    if (const std::vector<int> silent = look(now); !silent.empty()) return on_break_(silent);
    next_look_ = now + kLookEvery;
  }
}

std::vector<int> Guard::look(Clock::time_point now) {
  if (now - next_look_ > kOverslept) signs_->begin_anew(now);
  signs_->ask();
  const std::int64_t since = step_since_.load();
  if (since == 0) return {};
  // Rank 0 minds a step that lasts; the others mind rank 0, whatever they want of it.
  if (rank_ != 0) return signs_->silent_since(now - limit_ - kAnswerPatience);
  if (now.time_since_epoch() - Clock::duration(since) < limit_) return {};
  return signs_->silent_since(now - kAnswerPatience);
}

}  // namespace hora::collectives
