// The established star: framed messages over sockets whose owners are known.
#pragma once

#include <string>
#include <vector>

#include "collectives/control/control_channel.h"
#include "collectives/control/frame_buffer.h"
#include "rendezvous/os/fd.h"

namespace hora::collectives {

// A peer that vanished without a word (cut cable, dead host) is noticed within seconds.
void watch_for_silence(int socket);

class TcpChannel final : public ControlChannel {
 public:
  TcpChannel();
  // Before the first poll(). `early` is what has been read from the socket already.
  Status add_peer(int rank, os::Fd socket, FrameBuffer early);

  void send(int rank, std::string_view bytes) override;
  Status flush(int rank, Deadline deadline) override;
  std::vector<Incoming> poll(Deadline deadline) override;
  void wake() override;
  void hang_up() override;
  std::vector<int> liveness_fds() const override;

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
};

}  // namespace hora::collectives
