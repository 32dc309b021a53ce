// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/launcher_link.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "launcher/process/process_table.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// One queue, out_, holds what is still to be written; out_position_ is how far the kernel has taken
// it. While something is left the loop watches for room to write, and only then, since a pipe with
// room would otherwise wake the agent all the time. How much output may stand here is limited by
// the window that the launcher acknowledges, not by this class.

namespace {

constexpr std::size_t kReadChunk = 64 * 1024;
constexpr int kReadsPerTurn = 16;  // then the ranks' output gets its turn

Status make_non_blocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return errno_error(errno, "making the launcher's stream non-blocking");
  }
  return Ok{};
}

}  // namespace

LauncherLink::LauncherLink(os::EventLoop& loop, int read_fd, int write_fd)
    : loop_(loop), read_fd_(read_fd), write_fd_(write_fd), silence_(Clock::now()) {}

LauncherLink::~LauncherLink() {
  if (watching_read_) loop_.unwatch(read_fd_);
  want_write(false);
  end_hold();
}

Status LauncherLink::open(Handlers handlers) {
  handlers_ = std::move(handlers);
  HORA_TRY(make_non_blocking(read_fd_));
  HORA_TRY(make_non_blocking(write_fd_));
  HORA_TRY(loop_.watch(read_fd_, EPOLLIN, [this](std::uint32_t) { read_now(); }));
  watching_read_ = true;
  // Before all frames: the login shell may have printed its own text, and the launcher skips
  // everything before the magic. Sent with the first frame.
  out_.append(kAgentMagic);
  return Ok{};
}

void LauncherLink::queue(FrameType type, std::string_view payload) {
  if (ended_) return;
  append_frame(out_, type, payload);
  if (held_ == 0) flush_later();
}

void LauncherLink::flush_later() {
  end_hold();
  if (std::exchange(flush_deferred_, true)) return;
  loop_.defer([this] {
    flush_deferred_ = false;
    if (held_ == 0) flush();
  });
}

// Output and the end of the job do not wait: they flush, and take with them what was held back.
void LauncherLink::hold_back(Milliseconds most) {
  end_hold();
  held_ = loop_.call_after(most, [this] { flush(); });
}

void LauncherLink::end_hold() { loop_.cancel(std::exchange(held_, 0)); }

bool LauncherLink::hung_up() const {
  pollfd stream{read_fd_, POLLRDHUP, 0};
  return ended_ || ::poll(&stream, 1, 0) > 0;
}

void LauncherLink::log(LogLine line) {
  // The launcher would end a host that says more: it keeps to the same limit.
  if (log_lines_ == kMostLogLines) return;
  if (++log_lines_ == kMostLogLines) line.message = "what else this host has to say is left out";
  send(std::move(line));
}

void LauncherLink::flush() {
  end_hold();
  while (!ended_ && out_position_ < out_.size()) {
    const ssize_t wrote = ::write(write_fd_, out_.data() + out_position_,
                                  out_.size() - out_position_);  // SIGPIPE is blocked
    if (wrote < 0) {
      if (errno == EINTR) continue;
      if (os::would_block(errno)) break;
      end(std::string("writing to the launcher: ") + std::strerror(errno));
      return;
    }
    out_position_ += static_cast<std::size_t>(wrote);
  }
  if (ended_) return;
  if (out_position_ == out_.size()) {
    out_.clear();
    out_position_ = 0;
    // Moving the rest only when it is the smaller half keeps the cost per byte constant.
  } else if (out_position_ > out_.size() / 2) {
    out_.erase(0, out_position_);
    out_position_ = 0;
  }
  want_write(!out_.empty());
  if (out_.empty() && on_all_sent_) on_all_sent_();
}

void LauncherLink::want_write(bool wanted) {
  if (wanted == watching_write_) return;
  if (!wanted) {
    loop_.unwatch(write_fd_);
    watching_write_ = false;
    return;
  }
  const auto watched = loop_.watch(write_fd_, EPOLLOUT, [this](std::uint32_t) { flush(); });
  // If memory for watching it is missing, the next flush() tries again.
  watching_write_ = watched.has_value();
}

void LauncherLink::read_now() {
  // An agent has one link and one loop's thread.
  static char chunk[kReadChunk];
  for (int turn = 0; turn < kReadsPerTurn && !ended_; ++turn) {
    const ssize_t got = ::read(read_fd_, chunk, sizeof chunk);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) end(std::string("reading from the launcher: ") + std::strerror(errno));
      return;
    }
    if (got == 0) {
      end("the launcher closed the stream");
      return;
    }
    silence_.received(Clock::now());
    frames_.feed({chunk, static_cast<std::size_t>(got)});
    // A handler may end the link: what was read after that frame is dropped.
    while (!ended_) {
      auto frame = frames_.next();
      if (!frame) {
        end(frame.error().message);
        return;
      }
      if (!frame->has_value()) break;
      const FrameType type = (*frame)->type;
      auto message = read_launcher_frame(std::move(**frame), turns_);
      if (!message) {
        handlers_.on_violation(std::move(message).error().message);
        continue;
      }
      turns_.note_received(type);
      handlers_.on_message(std::move(*message));
    }
    if (static_cast<std::size_t>(got) < sizeof chunk) return;
  }
}

void LauncherLink::end(std::string why) {
  if (ended_) return;
  ended_ = true;
  if (watching_read_) loop_.unwatch(read_fd_);
  watching_read_ = false;
  want_write(false);
  out_.clear();
  out_position_ = 0;
  handlers_.on_end(std::move(why));
}

namespace {

// Nothing runs before the order, and other hosts may need long to connect and to receive files; but
// a launcher that lives says so every 2.5 s at least.
constexpr Milliseconds kLeaseBeforeOrder{30'000};
constexpr Milliseconds kHeartbeatBeforeOrder{2'500};

}  // namespace

LauncherLease::LauncherLease(os::EventLoop& loop, LauncherLink& link, Options options,
                             std::function<void()> on_lost)
    : loop_(loop),
      link_(link),
      options_(options),
      on_lost_(std::move(on_lost)),
      lease_(kLeaseBeforeOrder),
      pause_(kHeartbeatBeforeOrder) {}

void LauncherLease::begin() { await_next(); }

void LauncherLease::take_order(Milliseconds lease) {
  lease_ = lease;
  // Three heartbeats may be lost or late before the other side gives up.
  pause_ = lease / 4;
  beat();
}

void LauncherLease::stop() {
  stopped_ = true;
  loop_.cancel(timer_);
  timer_ = 0;
}

void LauncherLease::beat() {
  if (stopped_ || link_.ended()) return;
  // Not now(): we may have been stopped ourselves, with heartbeats waiting.
  const auto now = loop_.polled_at();
  Silence& silence = link_.silence();
  const bool can_look = !suspended_ && options_.launcher != 0;
  silence.look(next_, now, pause_,
               can_look ? std::optional(pulse_of(options_.launcher)) : std::nullopt);
  await_next();
  link_.send(Heartbeat{});
  if (judge(silence.evidence(now), limit()) != Verdict::kLost) return;
  link_.read_now();  // what has come since the loop looked
  if (!stopped_ && !link_.ended() && silence.length(now) > limit()) on_lost_();
}

void LauncherLease::await_next() {
  loop_.cancel(timer_);
  next_ = Clock::now() + pause_;
  timer_ = loop_.call_at(next_, [this] { beat(); });
}

}  // namespace hora::launcher
