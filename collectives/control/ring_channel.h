// SPDX-License-Identifier: Apache-2.0
// The star inside one host: messages travel through rings in shared memory. The established TCP
// connections stay open and show when a rank is gone. The rank's last messages are in its ring by
// then, so the channel reads the ring before it reports the end.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "collectives/control/control_channel.h"
#include "collectives/control/frame_buffer.h"
#include "collectives/control/shm_fast_path.h"
#include "collectives/memory/byte_ring.h"
#include "collectives/memory/core_spread.h"
#include "collectives/memory/futex.h"
#include "collectives/memory/segment.h"

namespace hora::collectives {

// One rank's doorbells, in shared memory.
struct alignas(128) DoorbellLine {
  std::atomic<std::uint32_t> asleep;  // 0: awake; otherwise the Waiter whose doorbell to ring
  std::atomic<std::uint32_t> doorbells[2];
  CpuOfRank cpu;
};

// The layout of the segment, which is the same on every rank.
struct RingLayout {
  int size = 1;
  std::size_t bytes() const;
  DoorbellLine* doorbell(void* base, int rank) const;
  ByteRing::Memory* to_worker(void* base, int rank) const;
  ByteRing::Memory* to_coordinator(void* base, int rank) const;
  void* fast_path(void* base) const;
};

class RingChannel final : public ControlChannel, public Waiters {
 public:
  // `links` is the star among all ranks of the world, with nothing in flight. `spin`: the host has
  // a core for each rank.
  RingChannel(std::unique_ptr<ControlChannel> links, Segment segment, int rank, int size,
              bool spin);

  void send(int rank, std::string_view bytes) override;
  Status flush(int rank, Deadline deadline) override;
  std::vector<Incoming> poll(Deadline deadline) override;
  void wake() override;
  void hang_up() override { links_->hang_up(); }
  std::vector<int> liveness_fds() const override { return links_->liveness_fds(); }
  Waiters* waiters() override { return this; }
  FastPath* fast_path() override { return &fast_path_; }

  std::uint32_t ticket_of(Waiter waiter) const override;
  bool gives_way() const override { return spinner_.gives_way(); }
  bool watch() override;
  bool park(Waiter waiter) override;
  void unpark() override;
  bool may_stay_parked() const override;
  bool thread_was_rung() const override;
  void sleep(Waiter waiter, std::uint32_t ticket, Deadline deadline) override;
  void ring(Waiter waiter) override;
  void set_driver(Waiter waiter) override { waiter_ = waiter; }

 private:
  struct Peer {
    int rank = 0;
    DoorbellLine* doorbell = nullptr;
    ByteRing in;
    ByteRing out;
    FrameBuffer frames;
    std::string backlog;   // framed messages that did not fit into the ring yet
    std::size_t sent = 0;  // bytes of the backlog that are in the ring
    bool unrung = false;   // it is idle, and has not been notified of a message
    bool gone = false;
    std::string reason;
  };

  Peer* find(int rank);
  void call(DoorbellLine& line) const;
  void ring(Peer& peer);
  void ring_idle_peers();
  void push_backlog(Peer& peer);
  static void drop_backlog(Peer& peer);
  void read_from(Peer& peer, std::vector<Incoming>& messages);
  void ask_links(std::vector<Incoming>& messages);
  bool something_came();
  Deadline next_look(Deadline deadline) const;
  std::atomic<std::uint32_t>& doorbell(Waiter waiter) const;

  std::unique_ptr<ControlChannel> links_;
  Segment segment_;
  Spinner spinner_;
  CoreSpread spread_;
  DoorbellLine* own_;
  DoorbellLine* doorbells_;  // of all ranks
  int rank_;
  int size_;
  ShmFastPath fast_path_;
  std::vector<Peer> peers_;
  std::vector<Incoming> early_;  // messages that flush() met, for the next poll()
  std::atomic<bool> woken_{false};
  bool any_unrung_ = false;
  bool any_gone_ = false;
  Waiter waiter_ = Waiter::kThread;
};

}  // namespace hora::collectives
