// SPDX-License-Identifier: Apache-2.0
// A transport's end of the socketpair that it shares with the supervisor, and the bytes that wait
// in either direction. Lives on one event loop's thread; never waits.
#pragma once

#include <sys/epoll.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// Bytes in, the same bytes out, without moving them each time.
class ByteQueue {
 public:
  void append(std::string_view bytes) {
    if (position_ == bytes_.size()) {
      bytes_.clear();
      position_ = 0;
    } else if (position_ >= kWorthMoving && position_ >= bytes_.size() / 2) {
      bytes_.erase(0, position_);
      position_ = 0;
    }
    bytes_.append(bytes);
  }
  std::string_view front() const { return std::string_view(bytes_).substr(position_); }
  void pop(std::size_t count) { position_ += count; }
  std::size_t size() const { return bytes_.size() - position_; }
  bool empty() const { return size() == 0; }
  void clear() {
    bytes_.clear();
    position_ = 0;
  }

 private:
  static constexpr std::size_t kWorthMoving = 64 * 1024;
  std::string bytes_;
  std::size_t position_ = 0;
};

// What waits to be sent to a host: bytes of its own and, once, the agent, which all hosts share.
class OutgoingBytes {
 public:
  using Payload = std::shared_ptr<const std::string>;

  void append(std::string_view bytes) { own_.append(bytes); }
  // Follows all that was appended before. Append nothing until it has gone.
  void ship(Payload payload) {
    payload_ = std::move(payload);
    position_ = 0;
  }
  bool shipping() const { return payload_ != nullptr; }

  // What comes next; empty: nothing. Not all that waits, if bytes and a payload do.
  std::string_view front() const {
    if (!own_.empty()) return own_.front();
    return payload_ ? std::string_view(*payload_).substr(position_) : std::string_view();
  }
  void pop(std::size_t count) {
    if (!own_.empty()) return own_.pop(count);
    if (!payload_) return;
    position_ += count;
    if (position_ == payload_->size()) payload_.reset();
  }

  std::size_t own_size() const { return own_.size(); }
  void drop_payload() { payload_.reset(); }
  void clear() {
    own_.clear();
    payload_.reset();
  }

 private:
  ByteQueue own_;
  Payload payload_;
  std::size_t position_ = 0;  // in the payload
};

// The two ends of a host's stream.
struct SupervisorPair {
  os::Fd supervisor;
  // Waits in a task for an event loop; such a task has to be copyable.
  std::shared_ptr<os::Fd> transport;
};
Result<SupervisorPair> make_supervisor_pair(const std::string& host);
// Writes a short frame into the empty socket of a host that will have no agent.
void send_failure(const os::Fd& stream, const Failure& failure);

// The watch of one descriptor, which stays open until it stops. Where none could be started, the
// other functions do nothing.
class Watch {
 public:
  explicit Watch(os::EventLoop& loop) : loop_(loop) {}
  ~Watch() { stop(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  Status start(int fd, std::uint32_t events, os::EventLoop::IoHandler handler);
  bool is_on() const { return fd_ >= 0; }
  void change(std::uint32_t events);
  void stop();

 private:
  os::EventLoop& loop_;
  int fd_ = -1;
  std::uint32_t events_ = 0;
};

class SupervisorSocket {
 public:
  SupervisorSocket(os::EventLoop& loop, os::Fd fd) : fd_(std::move(fd)), watch_(loop) {}

  // Watches for the end of what the supervisor writes; see update_watch().
  Status open(os::EventLoop::IoHandler handler) {
    return watch_.start(fd_.get(), EPOLLRDHUP, std::move(handler));
  }
  // For another owner; only while nothing waits. The stream is as the supervisor left it: nothing
  // has been read or written.
  os::Fd release();
  void close() { (void)release(); }

  void append(std::string_view bytes) { waiting_.append(bytes); }
  std::size_t waiting() const { return waiting_.size(); }
  // Writes what the socket takes.
  void write();
  // Reads until `to` has `limit` bytes of its own, or there is no more for now.
  void read_into(OutgoingBytes& to, std::size_t limit);

  // What is watched for from now on, besides room for waiting bytes.
  void update_watch(bool input, bool end);

  bool at_end() const { return at_end_; }  // the supervisor will write nothing more
  bool gone() const { return gone_; }      // nor read
  void set_at_end() { at_end_ = true; }
  void set_gone();  // drops the waiting bytes

 private:
  os::Fd fd_;
  Watch watch_;  // ends before the descriptor does
  ByteQueue waiting_;
  bool at_end_ = false;
  bool gone_ = false;
};

}  // namespace hora::launcher
