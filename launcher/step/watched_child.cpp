// SPDX-License-Identifier: Apache-2.0
// Streams and end of the child are read without blocking, so that a command of the engine that
// hangs holds up nothing else on the loop.
#include "launcher/step/watched_child.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "launcher/protocol/exit_code.h"

namespace hora::launcher {

WatchedChild::~WatchedChild() { unwatch_all(); }

void WatchedChild::unwatch_all() {
  close_input();
  unwatch(child_.stdout_fd.get(), out_);
  unwatch(child_.stderr_fd.get(), err_);
  unwatch(child_.ended_fd(), end_);
}

void WatchedChild::leave() {
  unwatch_all();
  child_.leave();
}

Status WatchedChild::start(const std::vector<std::string>& argv) {
  auto child = PipedChild::start(argv);
  if (!child) return std::move(child).error();
  return watch(*std::move(child));
}

// Without a pidfd (Linux before 5.3) the end of the output tells of the end.
Status WatchedChild::watch(PipedChild child) {
  child_ = std::move(child);
  const auto read_output = [this](std::uint32_t) {
    const bool open = read_all(child_.stdout_fd, out_, handlers_.on_output);
    if (!open && child_.ended_fd() < 0) on_exit();
  };
  HORA_TRY(loop_.watch(child_.stdout_fd.get(), EPOLLIN, read_output));
  out_ = true;
  HORA_TRY(loop_.watch(child_.stderr_fd.get(), EPOLLIN, [this](std::uint32_t) {
    (void)read_all(child_.stderr_fd, err_, handlers_.on_errors);
  }));
  err_ = true;
  if (child_.ended_fd() < 0) return Ok{};
  HORA_TRY(loop_.watch(child_.ended_fd(), EPOLLIN, [this](std::uint32_t) { on_exit(); }));
  end_ = true;
  return Ok{};
}

// Twice does no harm: a stream may end before the process does, or after.
void WatchedChild::unwatch(int fd, bool& watched) {
  if (std::exchange(watched, false)) loop_.unwatch(fd);
}

// Blocking would need an answer that the loop's thread cannot read: the few bytes fit into the
// pipe.
void WatchedChild::write(std::string_view text) {
  while (child_.stdin_fd.valid() && !text.empty()) {
    const ssize_t wrote = ::write(child_.stdin_fd.get(), text.data(), text.size());
    if (wrote > 0) {
      text.remove_prefix(static_cast<std::size_t>(wrote));
    } else if (wrote < 0 && errno == EINTR) {
      continue;
    } else {  // it reads no more: its exit will say why
      child_.stdin_fd.reset();
    }
  }
}

void WatchedChild::close_input() {
  unwatch(child_.stdin_fd.get(), in_);
  child_.stdin_fd.reset();
}

Status WatchedChild::feed(std::shared_ptr<const std::string> bytes) {
  if (!child_.stdin_fd.valid()) return Ok{};
  input_ = std::move(bytes);
  HORA_TRY(loop_.watch(child_.stdin_fd.get(), EPOLLOUT, [this](std::uint32_t) { write_input(); }));
  in_ = true;
  return Ok{};
}

void WatchedChild::write_input() {
  while (fed_ < input_->size()) {
    const ssize_t wrote =
        ::write(child_.stdin_fd.get(), input_->data() + fed_, input_->size() - fed_);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EAGAIN) return;
    if (wrote < 0) break;
    fed_ += static_cast<std::size_t>(wrote);
  }
  close_input();
}

// False: the stream has ended.
bool WatchedChild::read_all(os::Fd& fd, bool& watched,
                            const std::function<void(std::string_view)>& tell) {
  char buffer[4096];
  while (fd.valid()) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
    if (got > 0) {
      if (tell) tell({buffer, static_cast<std::size_t>(got)});
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else if (got < 0 && errno == EAGAIN) {
      return true;
    } else {
      unwatch(fd.get(), watched);
      fd.reset();
    }
  }
  return false;
}

// What it had written may not have been read yet.
void WatchedChild::on_exit() {
  unwatch(child_.ended_fd(), end_);
  (void)read_all(child_.stderr_fd, err_, handlers_.on_errors);
  (void)read_all(child_.stdout_fd, out_, handlers_.on_output);
  const int status = child_.try_wait().value_or(kExitClientFailed);
  if (handlers_.on_end) std::exchange(handlers_.on_end, nullptr)(status);
}

}  // namespace hora::launcher
