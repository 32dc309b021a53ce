// SPDX-License-Identifier: Apache-2.0
// A file descriptor with one owner.
#pragma once

#include <utility>

namespace hora::os {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset();  // closes; EINTR counts as closed (Linux)
  // The same for what was written to: a network file system, or a quota, may refuse only now what
  // it took before. Answers that errno; 0: none.
  [[nodiscard]] int close();

 private:
  int fd_ = -1;
};

}  // namespace hora::os
