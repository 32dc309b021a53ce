// SPDX-License-Identifier: Apache-2.0
// Serves deliveries that this host has to other hosts of the job (protocol/delivery_proof.h). Who
// does not prove to have the key gets a random number and is disconnected. On the loop's thread;
// listens from create() until it is destroyed.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "launcher/agent/peer_server.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class DeliveryServer {
 public:
  static Result<std::unique_ptr<DeliveryServer>> create(os::EventLoop& loop, std::string key);

  int port() const { return peers_->port(); }
  void offer(const std::string& id, std::shared_ptr<const std::string> frames);
  void withdraw(const std::string& id) { offers_.erase(id); }  // who is being served gets the rest

 private:
  class Talk;

  explicit DeliveryServer(std::string key);

  std::string key_;
  std::map<std::string, std::shared_ptr<const std::string>> offers_;
  std::unique_ptr<PeerServer> peers_;  // goes first: its talks use the others
};

}  // namespace hora::launcher
