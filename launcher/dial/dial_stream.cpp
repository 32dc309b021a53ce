// SPDX-License-Identifier: Apache-2.0
#include "launcher/dial/dial_stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "rendezvous/base/result.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/threads.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kReadSize = 128 * 1024;
static_assert(kReadSize >= net::Stream::kLeastRoom);
constexpr int kMaxReads = 16;  // in one turn, before other connections have theirs

}  // namespace

DialStream::DialStream(os::EventLoop& loop, std::unique_ptr<net::Stream> stream,
                       std::size_t largest, Handlers handlers)
    : loop_(loop),
      stream_(std::move(stream)),
      reader_(largest),
      handlers_(std::make_shared<const Handlers>(std::move(handlers))) {}

DialStream::~DialStream() {
  *alive_ = false;
  close();
}

Status DialStream::open() {
  events_ = EPOLLIN | EPOLLRDHUP;
  return loop_.watch(stream_->fd(), events_, [this](std::uint32_t events) { on_io(events); });
}

// Written at once if the socket has room: most frames are small and awaited.
void DialStream::send(DialFrameType type, std::string_view head, std::string_view body) {
  if (!stream_) return;
  std::string frame;
  append_dial_frame(frame, type, head, body);
  out_.append(frame);
  write_some();
  update_watch();
}

void DialStream::listen(bool wanted) {
  if (std::exchange(listening_, wanted) != wanted) update_watch();
}

// TLS sends its close message with the end of the stream, so that the peer can distinguish an end
// from a cut.
void DialStream::close() {
  if (!stream_) return;
  write_some();
  loop_.unwatch(stream_->fd());
  stream_.reset();
}

void DialStream::on_io(std::uint32_t events) {
  const auto alive = alive_;
  const auto handlers = handlers_;
  if ((events & EPOLLOUT) != 0) {
    write_some();
    if (handlers->on_room) handlers->on_room();
    if (!*alive || !stream_) return;
  }
  // A peer that is gone is reported again and again: what it has sent is read now, however little
  // room there is for it. It is no more than the socket held.
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) peer_closed_ = true;
  if ((events & EPOLLIN) != 0 || peer_closed_) read_some();
  if (*alive && stream_) update_watch();
}

// Each read offers the stream so much room that no decrypted byte stays where epoll does not see
// it.
void DialStream::read_some() {
  const auto buffer = os::thread_buffer<DialStream, kReadSize>();
  const auto alive = alive_;
  const auto handlers = handlers_;
  for (int reads = 0; reads < kMaxReads && (listening_ || peer_closed_); ++reads) {
    const ssize_t got = stream_->receive(buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && os::would_block(errno)) return;
    if (got <= 0) {
      const bool by_tls = got < 0 && errno == EPROTO && !stream_->trouble().empty();
      return end(got == 0 ? "it was closed"
                 : by_tls ? std::string(stream_->trouble())
                          : errno_error(errno, "receiving").message);
    }
    reader_.feed({buffer.data(), static_cast<std::size_t>(got)});
    while (true) {
      auto frame = reader_.next();
      if (!frame) return end(std::move(frame).error().message);
      if (!frame->has_value()) break;
      handlers->on_frame(**frame);
      if (!*alive || !stream_) return;
    }
  }
}

// An error here is not the end: the peer may have sent its reason before it hung up, and that is
// read first.
void DialStream::write_some() {
  while (stream_) {
    if (stream_->must_push()) {
      if (!stream_->push()) return out_.clear();  // the reading side reports the end
      if (stream_->must_push()) return;
    }
    if (out_.empty()) return;
    const std::string_view bytes = out_.front();
    const iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    const ssize_t sent = stream_->send(&part, 1);
    if (sent > 0) {
      out_.pop(static_cast<std::size_t>(sent));
    } else if (sent < 0 && errno == EINTR) {
      continue;
    } else if (sent < 0 && os::would_block(errno)) {
      return;
    } else {
      return out_.clear();
    }
  }
}

// The peer's end is watched for in any case: a connection without reader may still break.
void DialStream::update_watch() {
  if (!stream_) return;
  std::uint32_t events = EPOLLRDHUP;
  if (listening_ || peer_closed_) events |= EPOLLIN;
  if (!out_.empty() || stream_->must_push()) events |= EPOLLOUT;
  if (events == events_) return;
  events_ = events;
  (void)loop_.change(stream_->fd(), events);
}

// The connection is closed before its owner is notified, which may connect again.
void DialStream::end(const std::string& why) {
  const auto handlers = handlers_;
  out_.clear();
  close();
  handlers->on_end(why);
}

void keep_alive(int fd) {
  const int on = 1, idle_s = 10, interval_s = 5, probes = 4, unanswered_ms = 30'000;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof unanswered_ms);
}

}  // namespace hora::launcher
