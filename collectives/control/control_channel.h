// Messages between the coordinator (rank 0 of the world) and every other rank, in order, and the
// news that a rank is gone. Used by the thread that drives the runtime; wake() by any thread.
//
// Some channels let two threads take turns to drive (waiters() is not null): see waiters.h.
#pragma once

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
  bool gone = false;  // the connection has ended; bytes says how. Comes once per rank, last
  std::string bytes;
};

class TcpChannel;

inline constexpr Deadline kNoWait = Deadline::min();

class ControlChannel {
 public:
  virtual ~ControlChannel() = default;

  // Queues one message: to any rank on the coordinator, to rank 0 elsewhere. A rank that is gone
  // may still be listening; a message that cannot reach it is dropped.
  virtual void send(int rank, std::string_view bytes) = 0;
  // Until the messages queued for `rank` (-1: for all) are with the kernel.
  virtual Status flush(int rank, Deadline deadline) = 0;
  // Waits for messages, for wake() or for the deadline, and answers what has come. kNoWait: what is
  // there now.
  virtual std::vector<Incoming> poll(Deadline deadline) = 0;
  // Ends a poll() that waits, or the next one.
  virtual void wake() = 0;
  // Tells rank 0, or all others, that this side will send nothing more: they see it at once, even
  // those that are not reading.
  virtual void hang_up() = 0;
  // The descriptors on which the end of a peer shows (POLLRDHUP). Owned by the channel.
  virtual std::vector<int> liveness_fds() const = 0;
  // Null where only one thread can wait for messages.
  virtual Waiters* waiters() { return nullptr; }
  // Null where there is none. poll() returns for its news, too.
  virtual FastPath* fast_path() { return nullptr; }
  // Null where it is not made of connections alone.
  virtual TcpChannel* sockets() { return nullptr; }
};

}  // namespace hora::collectives
