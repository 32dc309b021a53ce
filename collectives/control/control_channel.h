// SPDX-License-Identifier: Apache-2.0
// Carries messages, in order, between the coordinator (rank 0 of the world) and every other rank,
// and reports when a rank is gone. Only the thread that drives the runtime uses a channel; any
// thread may call wake().
//
// Some channels let two threads take turns to drive (waiters() is not null): see waiters.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/control/fast_path.h"
#include "collectives/control/waiters.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"

namespace hora::collectives {

struct Incoming {
  int rank = 0;       // global rank of the sender
  bool gone = false;  // the connection has ended; `bytes` says how. Once per rank, its last message
  std::string bytes;
  bool cut_off = false;  // `gone` only because another rank is, which is reported itself
};

class TcpChannel;

inline constexpr Deadline kNoWait = Deadline::min();

class ControlChannel {
 public:
  virtual ~ControlChannel() = default;

  // Queues one message: to any rank on the coordinator, to rank 0 elsewhere. A rank that is gone
  // may still read; the channel drops a message that cannot reach its rank.
  virtual void send(int rank, std::string_view bytes) = 0;
  // The same message to each of them. It may be large, and is kept in memory once.
  virtual void send_to_all(const std::vector<std::int32_t>& ranks, std::string_view bytes) {
    for (const std::int32_t rank : ranks) send(rank, bytes);
  }
  // Blocks until the kernel (or the ring) has taken all messages for `rank` (-1: for every rank).
  virtual Status flush(int rank, Deadline deadline) = 0;
  // Waits for messages, for wake() or for the deadline, and returns the messages that have arrived.
  // With kNoWait it returns at once.
  virtual std::vector<Incoming> poll(Deadline deadline) = 0;
  // Ends a poll() that is waiting, or else the next one.
  virtual void wake() = 0;
  // Announces to rank 0, or to all others, that this side sends nothing more. They see it at once,
  // even if they are not reading.
  virtual void hang_up() = 0;
  // The descriptors on which the end of a peer shows (POLLRDHUP). The channel owns them.
  virtual std::vector<int> liveness_fds() const = 0;
  // Null where only one thread can wait for messages.
  virtual Waiters* waiters() { return nullptr; }
  // The fast path, which the channel owns, or null. poll() also returns when the fast path has
  // work.
  virtual FastPath* fast_path() { return nullptr; }
  // Null for a channel that uses more than TCP connections.
  virtual TcpChannel* sockets() { return nullptr; }
};

}  // namespace hora::collectives
