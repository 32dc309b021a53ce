// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/supervisor_socket.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "launcher/protocol/frame.h"
#include "rendezvous/os/threads.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kReadSize = 64 * 1024;

}  // namespace

Result<SupervisorPair> make_supervisor_pair(const std::string& host) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return errno_error(errno, "making a socketpair for host " + host);
  }
  return SupervisorPair{os::Fd(ends[0]), std::make_shared<os::Fd>(ends[1])};
}

void send_failure(const os::Fd& stream, const Failure& failure) {
  const std::string text = std::string(kAgentMagic) + encode_frame(fit(failure));
  [[maybe_unused]] const ssize_t sent =
      ::send(stream.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

Status Watch::start(int fd, std::uint32_t events, os::EventLoop::IoHandler handler) {
  HORA_TRY(loop_.watch(fd, events, std::move(handler)));
  fd_ = fd;
  events_ = events;
  return Ok{};
}

void Watch::change(std::uint32_t events) {
  if (!is_on() || std::exchange(events_, events) == events) return;
  (void)loop_.change(fd_, events);
}

void Watch::stop() {
  if (is_on()) loop_.unwatch(std::exchange(fd_, -1));
}

os::Fd SupervisorSocket::release() {
  watch_.stop();
  return std::move(fd_);
}

void SupervisorSocket::set_gone() {
  gone_ = at_end_ = true;
  waiting_.clear();
}

void SupervisorSocket::write() {
  while (!waiting_.empty()) {
    const auto bytes = waiting_.front();
    const ssize_t wrote =
        ::send(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && os::would_block(errno)) return;
    if (wrote <= 0) return set_gone();
    waiting_.pop(static_cast<std::size_t>(wrote));
  }
}

void SupervisorSocket::read_into(OutgoingBytes& to, std::size_t limit) {
  const auto buffer = os::thread_buffer<SupervisorSocket, kReadSize>();
  while (!at_end_ && to.own_size() < limit) {
    const ssize_t got = ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && os::would_block(errno)) return;
    at_end_ = got <= 0;
    if (got > 0) to.append({buffer.data(), static_cast<std::size_t>(got)});
  }
}

// epoll reports a hang-up whatever is asked for, again and again: a socket whose other end is
// closed is not watched at all.
void SupervisorSocket::update_watch(bool input, bool end) {
  if (gone_) return watch_.stop();
  std::uint32_t events = 0;
  if (!at_end_ && input) events |= EPOLLIN;
  if (!at_end_ && end) events |= EPOLLRDHUP;
  if (!waiting_.empty()) events |= EPOLLOUT;
  watch_.change(events);
}

}  // namespace hora::launcher
