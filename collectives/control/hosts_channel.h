// SPDX-License-Identifier: Apache-2.0
// The control channel of a job on several hosts, and its setup.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/control/leader_fast_path.h"
#include "collectives/control/tcp_channel.h"
#include "collectives/control/tcp_control.h"
#include "collectives/memory/core_spread.h"
#include "collectives/memory/futex.h"
#include "collectives/memory/segment.h"
#include "rendezvous/os/fd.h"

namespace hora::collectives {

// The star among ranks of several hosts, together with the fast path of leader_fast_path.h: the
// ranks of a host communicate through shared memory, and their leaders through connections. A rank
// waits at once for sockets and for other ranks of its host: those write into its pipe when it
// sleeps.

// The parts that a rank has set up before it makes the channel. The channel
// owns all of them.
struct HostsParts {
  LeaderPlan plan;
  // The star, and the other leaders; the leader of host h has the number leader_peer(h).
  std::unique_ptr<ControlChannel> links;
  Segment segment;
  os::Fd doorbell;  // the reading end of this rank's pipe
  std::vector<os::Fd>
      doorbells;      // by place: writing ends of the pipes of this host's ranks, this one included
  bool spin = false;  // the host has a core for each of its ranks
  // The longest way from one leader to another one and back, the same on all ranks; 0: not known.
  std::chrono::microseconds round_trip{0};
};

class HostsChannel final : public ControlChannel, public Waiters {
 public:
  static std::size_t memory_bytes(const LeaderPlan& plan);
  static int leader_peer(int host) { return kFirstLeader + host; }

  explicit HostsChannel(HostsParts parts);

  void send(int rank, std::string_view bytes) override { links_->send(rank, bytes); }
  void send_to_all(const std::vector<std::int32_t>& ranks, std::string_view bytes) override {
    links_->send_to_all(ranks, bytes);
  }
  Status flush(int rank, Deadline deadline) override { return links_->flush(rank, deadline); }
  std::vector<Incoming> poll(Deadline deadline) override;
  void wake() override;
  void hang_up() override { links_->hang_up(); }
  std::vector<int> liveness_fds() const override { return links_->liveness_fds(); }
  Waiters* waiters() override { return this; }
  FastPath* fast_path() override { return &*fast_path_; }

  std::uint32_t ticket_of(Waiter) const override {
    return 0;
  }  // a pipe that was rung stays readable
  bool gives_way() const override { return spinner_.gives_way(); }
  bool watch() override;
  bool park(Waiter waiter) override;
  void unpark() override;
  bool may_stay_parked() const override { return false; }
  // A pipe that was rung stays readable: nothing is lost.
  bool thread_was_rung() const override { return false; }
  void sleep(Waiter waiter, std::uint32_t ticket, Deadline deadline) override;
  void ring(Waiter waiter) override;
  void set_driver(Waiter waiter) override;

 private:
  static constexpr int kFirstLeader = 1 << 30;
  struct Sleeper;

  void call(int place) const;
  bool something_came();
  bool sockets_are_readable() const;
  void spread();
  void sort(std::vector<Incoming> came, std::vector<Incoming>& messages);

  std::unique_ptr<ControlChannel> owner_;
  TcpChannel* links_;  // owned by owner_
  Segment segment_;
  Sleeper* sleepers_;  // by place
  int place_;
  std::vector<os::Fd> doorbells_;
  std::optional<LeaderFastPath> fast_path_;
  Spinner spinner_;
  CoreSpread spread_;
  std::atomic<bool> woken_{false};
  os::Fd thread_doorbell_;  // an eventfd
  os::Fd runtime_epoll_;  // an epoll set that holds the sockets while the runtime's thread watches
                          // them
  Waiter waiter_ = Waiter::kThread;
};

// How the ranks of several hosts set up what a HostsChannel needs: memory and pipes within each
// host, and connections between the leaders.

// What a rank has opened before it meets the others, who find it by the card.
struct OwnSockets {
  os::Pipe doorbell;  // on which the ranks of its host wake it
  os::Fd listener;    // for other leaders, if it may lead
  std::string card;

  static OwnSockets open(const std::string& address, bool may_lead);
};

struct HostsBootstrap {
  Allgather all;   // among all ranks of the world
  Allgather here;  // among the ranks of this host, by place
  OwnSockets own;
  std::vector<std::string> cards;                           // by rank
  std::function<bool()> broken_off = [] { return false; };  // KeyedGathering::broken_off
  // Of allgather(): by then all have to know which leaders cannot reach each other.
  std::chrono::milliseconds timeout{30'000};
};

// Collective. Returns kUnavailable, with the same text on all ranks, when one of them cannot do it;
// the star then continues as it is. Any other error means that the ranks cannot communicate. On
// success `parts` takes over `links`, the star. The caller fills in `parts.plan` and `parts.spin`.
Status bootstrap_hosts(HostsBootstrap bootstrap, std::unique_ptr<ControlChannel>& links,
                       HostsParts& parts);

}  // namespace hora::collectives
