// The established star: framed messages over sockets whose owners are known.
#pragma once

#include <string>
#include <vector>

#include "collectives/control/control_channel.h"
#include "collectives/control/frame_buffer.h"
#include "rendezvous/os/fd.h"

namespace hora::collectives {

// A peer that vanished without a word (cut cable, dead host) is noticed within seconds.
void watch_for_silence(int socket, int seconds = 4);

class TcpChannel final : public ControlChannel {
 public:
  TcpChannel();
  // Before the first poll(). `early` is what has been read from the socket already.
  Status add_peer(int rank, os::Fd socket, FrameBuffer early);
  // A peer of another channel, before its first poll(), under a number of this one. It is told of
  // to those that were added: so its silence is noticed sooner, and hang_up() leaves it alone.
  Status take_peer(TcpChannel& from, int rank, int as);
  // Once: poll() returns when something is written into that pipe.
  void watch_doorbell(os::Fd reading_end);
  // Readable when poll() has something to do.
  int waiting_fd() const { return epoll_.get(); }

  void send(int rank, std::string_view bytes) override;
  Status flush(int rank, Deadline deadline) override;
  std::vector<Incoming> poll(Deadline deadline) override;
  void wake() override;
  void hang_up() override;
  std::vector<int> liveness_fds() const override;
  TcpChannel* sockets() override { return this; }

 private:
  struct Peer {
    int rank = 0;
    os::Fd socket;
    FrameBuffer in;
    std::string out;
    std::size_t sent = 0;  // of out
    bool gone = false;     // nothing more comes from it; it may still be listening
    bool deaf = false;     // nothing more reaches it
    bool reported = false;
    bool watching_output = false;
    bool taken_over = false;
    std::string reason;
  };

  void read_from(Peer& peer);
  void write_to(Peer& peer);
  void lose(Peer& peer, std::string reason);
  void watch(Peer& peer);
  void collect(Peer& peer, std::vector<Incoming>& messages);
  Peer* find(int rank);

  std::vector<Peer> peers_;
  os::Fd epoll_;
  os::Fd wake_up_;
  os::Fd doorbell_;
};

}  // namespace hora::collectives
