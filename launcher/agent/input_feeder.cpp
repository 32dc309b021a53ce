// SPDX-License-Identifier: Apache-2.0
// Passes stdin to ranks. The launcher sends only as much as it has credit for, and every byte is
// acknowledged exactly once, also a byte that no rank will read; otherwise the credit would leak
// and the input would stop.
#include "launcher/agent/input_feeder.h"

#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

namespace hora::launcher {

InputFeeder::InputFeeder(os::EventLoop& loop, LauncherLink& link) : loop_(loop), link_(link) {}

InputFeeder::~InputFeeder() {
  for (auto& [rank, feed] : feeds_) watch(rank, feed, false);
}

Status InputFeeder::add(int rank, os::Fd pipe) {
  feeds_[rank].pipe = std::move(pipe);
  return Ok{};
}

// A rank that is gone, or whose input has ended, still returns the credit.
void InputFeeder::write(int rank, std::string_view bytes) {
  const auto found = feeds_.find(rank);
  if (found == feeds_.end() || !found->second.pipe.valid() || found->second.ending) {
    acknowledge(rank, bytes.size());
    return;
  }
  found->second.waiting.append(bytes);
  push(rank, found->second);
}

// The end follows the bytes that still wait.
void InputFeeder::end(int rank) {
  const auto found = feeds_.find(rank);
  if (found == feeds_.end()) return;
  found->second.ending = true;
  push(rank, found->second);
}

// The kernel signals SIGWINCH to the process group in the foreground there.
void InputFeeder::resize(int rank, int rows, int columns) {
  const auto found = feeds_.find(rank);
  if (found == feeds_.end()) return;
  winsize size{};
  size.ws_row = static_cast<unsigned short>(rows);
  size.ws_col = static_cast<unsigned short>(columns);
  (void)::ioctl(found->second.pipe.get(), TIOCSWINSZ, &size);
}

void InputFeeder::close(int rank) {
  const auto found = feeds_.find(rank);
  if (found != feeds_.end()) shut(rank, found->second);
}

// Writes what the pipe takes and watches it only while something is left.
void InputFeeder::push(int rank, Feed& feed) {
  std::size_t delivered = 0;
  while (feed.pipe.valid() && feed.position < feed.waiting.size()) {
    const ssize_t wrote = ::write(feed.pipe.get(), feed.waiting.data() + feed.position,
                                  feed.waiting.size() - feed.position);  // SIGPIPE is blocked
    if (wrote < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) break;
      // EPIPE: the rank does not read any more, which is its right.
      shut(rank, feed);
      break;
    }
    feed.position += static_cast<std::size_t>(wrote);
    delivered += static_cast<std::size_t>(wrote);
  }
  if (feed.position == feed.waiting.size()) {
    feed.waiting.clear();
    feed.position = 0;
    if (feed.ending) shut(rank, feed);
  }
  if (feed.pipe.valid()) watch(rank, feed, !feed.waiting.empty());
  if (delivered > 0) acknowledge(rank, delivered);
}

// Bytes that no rank can read any more are acknowledged as well.
void InputFeeder::shut(int rank, Feed& feed) {
  watch(rank, feed, false);
  feed.pipe.reset();
  const std::size_t lost = feed.waiting.size() - feed.position;
  feed.waiting.clear();
  feed.position = 0;
  if (lost > 0) acknowledge(rank, lost);
}

void InputFeeder::watch(int rank, Feed& feed, bool wanted) {
  if (wanted == feed.watched) return;
  feed.watched = wanted;
  if (!wanted) {
    loop_.unwatch(feed.pipe.get());
    return;
  }
  const auto watched = loop_.watch(feed.pipe.get(), EPOLLOUT, [this, rank](std::uint32_t) {
    const auto found = feeds_.find(rank);
    if (found != feeds_.end()) push(rank, found->second);
  });
  if (!watched) shut(rank, feed);
}

void InputFeeder::acknowledge(int rank, std::size_t bytes) { link_.send(InputTaken{rank, bytes}); }

}  // namespace hora::launcher
