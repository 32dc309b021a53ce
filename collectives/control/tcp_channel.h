// SPDX-License-Identifier: Apache-2.0
// The established star: framed messages over sockets whose peers are known and authenticated. Only
// the thread that drives uses a channel; any thread may call wake().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "collectives/control/control_channel.h"
#include "collectives/control/frame_buffer.h"
#include "collectives/control/tree_frames.h"
#include "rendezvous/os/fd.h"

namespace hora::collectives {

// Makes the kernel report a peer that vanished without closing its connection (cut cable, dead
// host) after five seconds of silence.
void watch_for_silence(int socket);
// Of such a connection: where one packet in a hundred has been lost and it has gone on, it has more
// time. To be called now and then.
void tolerate_losses(int socket);

class TreeNode;

class TcpChannel final : public ControlChannel {
 public:
  TcpChannel();
  ~TcpChannel() override;
  // Call this before the first poll(). `early` holds what the caller has already read from the
  // socket.
  Status add_peer(int rank, os::Fd socket, FrameBuffer early);
  // Instead, in a large job. On rank 0: the connection to its tree node, by which all other ranks
  // of a world of `size` are reached. `came` is what has been read from it; `alarm` ends when a
  // rank is gone. Elsewhere the way to rank 0 leads over another rank, whose end is the end of it.
  Status add_tree(int size, os::Fd socket, FrameBuffer early, std::vector<Word> came, os::Fd alarm);
  Status add_way_to_rank_0(int over, os::Fd socket, FrameBuffer early);
  // This rank's node, which ends after the connections of this channel.
  void keep(std::unique_ptr<TreeNode> node);
  // Takes over a peer of another channel, before that channel's first poll(), under the number
  // `as`. This rank reports the loss of such a peer to the peers that were added, so it has to
  // notice the silence sooner than they would; and hang_up() leaves it alone.
  Status take_peer(TcpChannel& from, int rank, int as);
  // Call this once: from then on poll() returns when something is written into that pipe.
  void watch_doorbell(os::Fd reading_end);
  // Readable when poll() has something to do.
  int waiting_fd() const { return epoll_.get(); }

  void send(int rank, std::string_view bytes) override;
  void send_to_all(const std::vector<std::int32_t>& ranks, std::string_view bytes) override;
  Status flush(int rank, Deadline deadline) override;
  std::vector<Incoming> poll(Deadline deadline) override;
  void wake() override;
  void hang_up() override;
  std::vector<int> liveness_fds() const override;
  TcpChannel* sockets() override { return this; }

 private:
  struct Peer {
    int rank = 0;
    int at_end = 0;  // the rank at the other end of the connection
    os::Fd socket;
    FrameBuffer in;
    std::shared_ptr<const std::string> shared;  // a frame that others get as well, before `out`
    std::string out;
    std::size_t sent = 0;          // bytes of `shared`, or else `out`, that the kernel has taken
    bool gone = false;             // it sends nothing more, but may still read
    bool deaf = false;             // it reads nothing more, or this side has hung up
    bool reported = false;         // poll() has returned its end
    bool watching_output = false;  // epoll watches it for EPOLLOUT
    bool taken_over = false;       // see take_peer()
    std::string reason;            // why it is gone
  };

  static bool has_words(const Peer& peer) { return peer.shared || !peer.out.empty(); }
  void read_from(Peer& peer);
  void write_to(Peer& peer);
  static void forget_words(Peer& peer);
  void lose(Peer& peer, std::string reason);
  void watch(Peer& peer);
  void collect(Peer& peer, std::vector<Incoming>& messages);
  void collect(const std::vector<Word>& words, std::vector<Incoming>& messages);
  Peer* find(int rank);
  bool is_behind_tree(int rank) const { return rank > 0 && rank < tree_size_; }
  void send_by_tree(std::string_view passage);

  std::unique_ptr<TreeNode> node_;  // the last to go
  std::vector<Peer> peers_;
  std::unordered_map<int, std::size_t> places_;  // in peers_, by rank
  std::vector<std::size_t> early_;               // peers that spoke before the first poll()
  os::Fd epoll_;
  os::Fd wake_up_;
  os::Fd doorbell_;
  // Rank 0 of a large job.
  int tree_size_ = 0;  // ranks below it are reached by the tree
  std::vector<Word> early_words_;
  os::Fd alarm_;
};

}  // namespace hora::collectives
