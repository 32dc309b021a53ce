// SPDX-License-Identifier: Apache-2.0
// A transport's end of the socketpair that it shares with the supervisor, and the bytes that wait
// for the supervisor to read them. Lives on one event loop's thread; never waits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/protocol/messages.h"
#include "launcher/transports/byte_queue.h"
#include "launcher/transports/outgoing_bytes.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// The two ends of a host's stream.
struct SupervisorPair {
  os::Fd supervisor;
  // Waits in a task for an event loop; such a task has to be copyable.
  std::shared_ptr<os::Fd> transport;
};
Result<SupervisorPair> make_supervisor_pair(const std::string& host);
// A short frame into the empty socket of a host that will have no agent.
void tell_failure(const os::Fd& stream, const Failure& failure);

class SupervisorSocket {
 public:
  SupervisorSocket(os::EventLoop& loop, os::Fd fd) : loop_(loop), fd_(std::move(fd)) {}
  ~SupervisorSocket() { close(); }
  SupervisorSocket(const SupervisorSocket&) = delete;
  SupervisorSocket& operator=(const SupervisorSocket&) = delete;

  // Watches for the end of what the supervisor writes; see update_watch().
  Status open(os::EventLoop::IoHandler handler);
  void close();
  os::Fd release();  // for another one to take over; nothing may be waiting

  void append(std::string_view bytes) { waiting_.append(bytes); }
  std::size_t waiting() const { return waiting_.size(); }
  // Writes what the socket takes.
  void write();
  // Reads until `to` has `limit` bytes of its own, or there is no more for now.
  void read_into(OutgoingBytes& to, std::size_t limit);

  // The events to watch for from now on, besides room for waiting bytes.
  void update_watch(bool input, bool end);

  bool at_end() const { return at_end_; }  // the supervisor will write nothing more
  bool gone() const { return gone_; }      // nor read
  void set_at_end() { at_end_ = true; }
  void set_gone();  // drops the waiting bytes

 private:
  os::EventLoop& loop_;
  os::Fd fd_;
  ByteQueue waiting_;
  bool watched_ = false;
  std::uint32_t events_ = 0;
  bool at_end_ = false;
  bool gone_ = false;
};

}  // namespace hora::launcher
