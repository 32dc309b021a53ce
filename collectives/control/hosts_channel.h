// The star among ranks of several hosts, with the lane of leader_lane.h beside it: what the ranks
// of a host tell each other through shared memory, and what their leaders tell each other.
//
// A rank waits for sockets and for other ranks of its host at once: those write into its pipe when
// it sleeps.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/control/leader_lane.h"
#include "collectives/control/tcp_channel.h"
#include "collectives/memory/futex.h"
#include "collectives/memory/segment.h"
#include "rendezvous/os/fd.h"

namespace hora::collectives {

// What a rank has set up when the channel is made (hosts_meeting.h).
struct HostsParts {
  LeaderPlan plan;
  // The star; and the other leaders, of host h under the number leader_peer(h).
  std::unique_ptr<ControlChannel> links;
  Segment segment;
  os::Fd bell;                // the reading end of this rank's pipe
  std::vector<os::Fd> bells;  // by place: into the pipes of this host's ranks, this one among them
  bool spin = false;          // there is a core for each rank of this host
};

class HostsChannel final : public ControlChannel, public Seats {
 public:
  static std::size_t memory_bytes(const LeaderPlan& plan);
  static int leader_peer(int host) { return kFirstLeader + host; }

  explicit HostsChannel(HostsParts parts);

  void send(int rank, std::string_view bytes) override { links_->send(rank, bytes); }
  Status flush(int rank, Deadline deadline) override { return links_->flush(rank, deadline); }
  std::vector<Incoming> poll(Deadline deadline) override;
  void wake() override;
  void hang_up() override { links_->hang_up(); }
  std::vector<int> liveness_fds() const override { return links_->liveness_fds(); }
  Seats* seats() override { return this; }
  Lane* lane() override { return &*lane_; }

  std::uint32_t ticket_of(Seat) const override { return 0; }  // a pipe that was rung stays readable
  bool watch() override;
  bool lie_down(Seat seat) override;
  void get_up() override;
  void sleep(Seat seat, std::uint32_t ticket, Deadline deadline) override;
  void ring(Seat seat) override;
  void sit(Seat seat) override;

 private:
  static constexpr int kFirstLeader = 1 << 30;
  struct Sleeper;

  void call(int place) const;
  bool something_came();
  bool sockets_have_news() const;
  void sort(std::vector<Incoming> came, std::vector<Incoming>& messages);

  std::unique_ptr<ControlChannel> owner_;
  TcpChannel* links_;  // in it
  Segment segment_;
  Sleeper* sleepers_;  // by place
  int place_;
  std::vector<os::Fd> bells_;
  std::optional<LeaderLane> lane_;
  Spinner spinner_;
  std::atomic<bool> woken_{false};
  os::Fd thread_bell_;  // an eventfd
  os::Fd duty_;         // an epoll set: the sockets, while the runtime's thread is to look at them
  Seat seat_ = Seat::kThread;
};

}  // namespace hora::collectives
