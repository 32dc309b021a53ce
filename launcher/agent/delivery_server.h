// SPDX-License-Identifier: Apache-2.0
// Serves deliveries that this host has to other hosts of the job (protocol/delivery_proof.h). Who
// does not prove to have the key gets a random number and is disconnected. On the loop's thread;
// listens from create() until it is destroyed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "launcher/agent/delivery_seal.h"
#include "launcher/protocol/delivery_proof.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

class DeliveryServer {
 public:
  static Result<std::unique_ptr<DeliveryServer>> create(os::EventLoop& loop, std::string key);
  ~DeliveryServer();
  DeliveryServer(const DeliveryServer&) = delete;
  DeliveryServer& operator=(const DeliveryServer&) = delete;

  int port() const { return port_; }
  void offer(const std::string& id, std::shared_ptr<const std::string> frames);
  void withdraw(const std::string& id) { offers_.erase(id); }  // who is being served gets the rest

 private:
  // hello --> challenged --proof--> sending
  struct Peer {
    os::Fd fd;
    std::string heard;
    DeliveryTalk talk;
    std::shared_ptr<const std::string> frames;  // found by the hello
    bool proved = false;
    std::optional<DeliverySealer> seal;  // once it has proved
    std::string sealed;                  // what was sealed and is not sent
    Clock::time_point deadline;
  };
  using Number = std::uint64_t;

  DeliveryServer(os::EventLoop& loop, os::Fd socket, int port, std::string key);
  void accept_some();
  void admit(os::Fd fd);
  void on_event(Number number);
  bool listen_to(Peer& peer);  // false: it goes
  bool challenge(Peer& peer);
  bool check_proof(Peer& peer);
  bool send_some(Peer& peer);
  void drop(Number number);
  void drop_oldest_stranger();
  void look_at_deadlines();

  os::EventLoop& loop_;
  os::Fd socket_;
  int port_;
  std::string key_;
  std::map<std::string, std::shared_ptr<const std::string>> offers_;
  std::map<Number, Peer> peers_;  // the oldest first
  std::size_t served_ = 0;        // of them, those that have proved to be of the job
  Number next_ = 1;
  os::EventLoop::TimerId timer_ = 0;
};

}  // namespace hora::launcher
