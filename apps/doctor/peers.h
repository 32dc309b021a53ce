// SPDX-License-Identifier: Apache-2.0
// Measures a connection between two hosts: does it open, how long is a round trip, how many bytes
// pass, how large a packet passes in one piece.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "facts.h"
#include "rendezvous/base/address.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/fd.h"

namespace hora::doctor {

// Answers the probes of others, on TCP and UDP ports of the same number, until its end. A client
// without the nonce gets no answer.
class PeerServer {
 public:
  static Result<std::unique_ptr<PeerServer>> start(const std::string& nonce);
  ~PeerServer();
  PeerServer(const PeerServer&) = delete;
  PeerServer& operator=(const PeerServer&) = delete;

  int port() const { return port_; }

 private:
  PeerServer(os::Fd tcp, os::Fd udp, int port, std::string nonce)
      : tcp_(std::move(tcp)), udp_(std::move(udp)), port_(port), nonce_(std::move(nonce)) {}
  void serve_tcp();
  void serve_udp();

  os::Fd tcp_, udp_;
  int port_;
  std::string nonce_;
  std::atomic<bool> stopping_{false};
  std::thread tcp_thread_, udp_thread_;
};

// {"rtt_us", "mbit_s", "mtu", "path_mtu", "source"} or {"error"}.
Json probe_peer(const Endpoint& where, const std::string& nonce);

}  // namespace hora::doctor
