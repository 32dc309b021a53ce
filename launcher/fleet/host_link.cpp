// SPDX-License-Identifier: Apache-2.0
// Output waits in two places: frames of our own gather in tail_, and move to out_ when it is their
// turn or when shared bytes (the bundle, which all hosts get) have to follow them. The order of
// sending is kept, and shared bytes are never copied. A handler may close or destroy the link.
// After each call of one, *alive says whether this object still exists; handlers_ is shared for the
// same reason.
#include "launcher/fleet/host_link.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "rendezvous/os/fd.h"
#include "rendezvous/os/threads.h"

namespace hora::launcher {

namespace {

// Large, since an agent with much output fills it, and each read costs a system call.
constexpr std::size_t kReadChunk = 64 * 1024;
constexpr std::size_t kWritesPerTurn = 4u << 20;  // bytes
// Below this, a sender with more data may queue it: what a fast network takes while it is packed.
constexpr std::size_t kRoom = 32u << 20;
constexpr int kReadsPerTurn = 8;  // then the other hosts get their turn

}  // namespace

HostLink::HostLink(os::EventLoop& loop, os::Fd fd, Handlers handlers)
    : loop_(loop),
      fd_(std::move(fd)),
      handlers_(std::make_shared<const Handlers>(std::move(handlers))),
      silence_(Clock::now()) {}

HostLink::~HostLink() { close(); }

Status HostLink::open() {
  const int flags = ::fcntl(fd_.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd_.get(), F_SETFL, flags | O_NONBLOCK) != 0) {
    return errno_error(errno, "making an agent's stream non-blocking");
  }
  return loop_.watch(fd_.get(), EPOLLIN, [this](std::uint32_t events) { on_io(events); });
}

void HostLink::close() {
  *alive_ = false;
  if (!fd_.valid()) return;
  loop_.unwatch(fd_.get());
  fd_.reset();
  out_.clear();
  tail_.clear();
  queued_bytes_ = 0;
}

void HostLink::queue(FrameType type, std::string_view payload) {
  if (!fd_.valid() || last_queued_) return;
  if (type == HostOrder::kRule.type && !order_at_) order_at_ = written_bytes_ + queued_bytes_;
  append_frame(tail_, type, payload);
  queued_bytes_ += kFrameHeaderSize + payload.size();
  write_later();
}

// The socket has room, as a rule. Otherwise wants_write_ is set, and the loop reports it.
void HostLink::write_later() {
  if (wants_write_ || write_deferred_) return;
  write_deferred_ = true;
  loop_.defer([this, alive = alive_] {
    if (!*alive) return;
    write_deferred_ = false;
    write_some();
  });
}

void HostLink::read_now() {
  if (fd_.valid()) on_io(EPOLLIN);
}

void HostLink::send_shared(std::shared_ptr<const std::string> frames) {
  if (!fd_.valid() || last_queued_ || frames->empty()) return;
  if (!tail_.empty()) {
    out_.push_back(std::make_shared<const std::string>(std::move(tail_)));
    tail_.clear();
  }
  queued_bytes_ += frames->size();
  out_.push_back(std::move(frames));
  write_later();
}

void HostLink::update_watch() {
  const bool wants = queued_bytes_ > 0;
  if (wants == wants_write_) return;
  wants_write_ = wants;
  // A failure here shows as an error event on the same fd.
  (void)loop_.change(fd_.get(), wants ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void HostLink::on_io(std::uint32_t events) {
  const std::shared_ptr<bool> alive = alive_;  // a handler may close or destroy this link
  if ((events & EPOLLOUT) != 0) write_some();
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  for (int turn = 0; turn < kReadsPerTurn && *alive; ++turn) {
    if (!read_some()) return;
  }
}

bool HostLink::read_some() {
  const auto chunk = os::thread_buffer<HostLink, kReadChunk>();
  const ssize_t got = ::read(fd_.get(), chunk.data(), chunk.size());
  // A reset: the agent has ended before it read what it was sent.
  if (got < 0 && errno != ECONNRESET) {
    if (errno == EINTR) return true;
    if (errno != EAGAIN) end(errno_error(errno, "reading from the agent").message);
    return false;
  }
  // An agent ends with a goodbye, and its handler closes the link: an end that is seen here is a
  // loss.
  if (got <= 0) {
    end(magic_seen_ ? "the connection closed before the job was over" : "no agent answered");
    return false;
  }
  silence_.received(Clock::now());
  const std::string_view bytes(chunk.data(), static_cast<std::size_t>(got));
  if (magic_seen_) {
    conversation_.feed(bytes);
  } else {
    // Until the magic comes, it is a shell that prints: login scripts, banners, errors.
    std::string rest;
    if (!magic_.feed(bytes, rest)) {
      if (magic_.overflowed()) {
        end("the remote shell printed more than 64 KiB before an agent answered");
        return false;
      }
      return true;
    }
    magic_seen_ = true;
    conversation_.feed(rest);
  }
  const std::shared_ptr<bool> alive = alive_;
  const auto handlers = handlers_;
  while (*alive) {
    auto event = conversation_.next<FleetEvent>();
    // After a violation nothing of the stream can be trusted, not even where the next frame begins.
    if (!event) {
      close();
      handlers->on_violation(std::move(event).error().message);
      return false;
    }
    if (!event->has_value()) break;
    handlers->on_event(std::move(**event));
  }
  // A short read has emptied the socket; another one would only return EAGAIN.
  return *alive && static_cast<std::size_t>(got) == chunk.size();
}

void HostLink::write_some() {
  const std::size_t before = queued_bytes_;
  // A reader that is as fast as this must not block the loop for others.
  while (queued_bytes_ > 0 && before - queued_bytes_ < kWritesPerTurn) {
    if (out_.empty()) {
      out_.push_back(std::make_shared<const std::string>(std::move(tail_)));
      tail_.clear();
    }
    const std::string& front = *out_.front();
    const ssize_t wrote =
        ::send(fd_.get(), front.data() + out_position_, front.size() - out_position_, MSG_NOSIGNAL);
    if (wrote < 0) {
      if (errno == EINTR) continue;
      if (os::would_block(errno)) break;
      // Nothing may follow lost bytes. The reading side reports the end, after the agent's last
      // messages were read.
      (void)::shutdown(fd_.get(), SHUT_WR);
      out_.clear();
      tail_.clear();
      out_position_ = 0;
      queued_bytes_ = 0;
      break;
    }
    out_position_ += static_cast<std::size_t>(wrote);
    queued_bytes_ -= static_cast<std::size_t>(wrote);
    written_bytes_ += static_cast<std::uint64_t>(wrote);
    if (out_position_ == front.size()) {
      out_.pop_front();
      out_position_ = 0;
    }
  }
  update_watch();
  if (before >= kRoom && queued_bytes_ < kRoom && handlers_->on_room) handlers_->on_room();
}

// The output of a remote shell that starts no agent is usually the explanation.
void HostLink::end(std::string detail) {
  if (!magic_seen_ && !magic_.noise().empty()) detail += shell_noise();
  const auto handlers = handlers_;
  close();
  handlers->on_end(std::move(detail));
}

std::string HostLink::shell_noise() const {
  constexpr std::size_t kShown = 400;
  std::string text = magic_.noise().substr(0, kShown);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return "; the remote side printed: " + text;
}

}  // namespace hora::launcher
