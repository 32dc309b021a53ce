#include "launcher/output/input_pump.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace hora::launcher {

InputPump::InputPump(os::EventLoop& loop, int fd, std::function<int(std::string_view)> consume)
    : loop_(loop), fd_(fd), consume_(std::move(consume)) {}

InputPump::~InputPump() { stop(); }

void InputPump::start() {
  started_ = true;
  update();
}

void InputPump::stop() {
  finished_ = true;
  update();
}

void InputPump::reconsider() { update(); }

void InputPump::delivered(std::size_t bytes) {
  in_flight_ -= std::min(bytes, in_flight_);
  update();
}

bool InputPump::in_background() const {
  return ::isatty(fd_) == 1 && ::tcgetpgrp(fd_) != ::getpgrp();
}

void InputPump::update() {
  const std::size_t window = kWindow * static_cast<std::size_t>(std::max(receivers_, 1));
  const bool wanted = started_ && !finished_ && in_flight_ < window && !in_background();
  if (!pollable_) {
    if (wanted && retry_ == 0) {
      retry_ = loop_.call_after({}, [this] {
        retry_ = 0;
        read_some();
      });
    } else if (!wanted && retry_ != 0) {
      loop_.cancel(retry_);
      retry_ = 0;
    }
    return;
  }
  if (wanted && !watched_) {
    if (loop_.watch(fd_, EPOLLIN, [this](std::uint32_t) { read_some(); })) {
      watched_ = true;
    } else {
      pollable_ = false;  // EPERM: a regular file
      update();
    }
  } else if (!wanted && watched_) {
    loop_.unwatch(fd_);
    watched_ = false;
  }
}

void InputPump::read_some() {
  std::array<char, 16 * 1024> chunk;
  const ssize_t got = ::read(fd_, chunk.data(), chunk.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) {
    update();
    return;
  }
  if (got <= 0) {
    // An input that cannot be read (closed, EIO of a lost terminal) ends like an empty one.
    finished_ = true;
    update();
    (void)consume_({});
    return;
  }
  const std::string_view bytes(chunk.data(), static_cast<std::size_t>(got));
  receivers_ = consume_(bytes);
  in_flight_ += bytes.size() * static_cast<std::size_t>(std::max(receivers_, 0));
  if (receivers_ == 0) finished_ = true;
  update();
}

}  // namespace hora::launcher
