#include "collectives/runtime/guard.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "rendezvous/os/quiet_thread.h"

namespace hora::collectives {

Guard::Guard(std::vector<int> fds, std::function<void()> on_break)
    : fds_(std::move(fds)),
      on_break_(std::move(on_break)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_(os::start_quiet_thread("hora-guard", [this] { watch(); })) {}

void Guard::stop() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void Guard::watch() {
  std::vector<pollfd> fds{{stop_.get(), POLLIN, 0}};
  for (int fd : fds_) fds.push_back({fd, POLLRDHUP, 0});
  while (true) {
    if (::poll(fds.data(), fds.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (fds[0].revents != 0) return;
    for (std::size_t i = 1; i < fds.size(); ++i) {
      if (fds[i].revents == 0) continue;
      on_break_();
      return;
    }
  }
}

}  // namespace hora::collectives
