// SPDX-License-Identifier: Apache-2.0
// This host's part in passing deliveries on: keeps those that the launcher names, fetches those
// that other hosts have, serves both. They are kept in memory, until the launcher says that every
// host has what it needs. On the loop's thread.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "launcher/agent/delivery_fetch.h"
#include "launcher/agent/delivery_server.h"
#include "launcher/protocol/frame.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class DeliveryExchange {
 public:
  struct Handlers {
    // Unpacks a delivery that was fetched. False: that has failed, and the job is over.
    std::function<bool(std::string_view frames)> unpack;
    std::function<bool()> may_unpack;  // none of the launcher's is half here
    std::function<void(DeliveryReport)> report;
  };
  DeliveryExchange(os::EventLoop& loop, Handlers handlers);

  // The Error says what the launcher should not have sent.
  Status keep(KeepDelivery order);  // the next delivery of the launcher
  Status fetch(FetchDelivery order);
  // A frame of a delivery of the launcher, before it is unpacked.
  void record(const Frame& frame);
  // It is unpacked: serves what is whole, unpacks what was fetched meanwhile.
  void proceed();
  // Keeps the delivery no longer; empty: ends all of it.
  void forget(const std::string& id);

 private:
  struct Fetched {
    FetchDelivery order;
    DeliveryFetch::Outcome outcome;
  };
  void start_fetches();
  void on_fetched(const std::string& id, DeliveryFetch::Outcome outcome);
  void unpack_fetched();
  void serve(const std::string& key, const std::string& id,
             std::shared_ptr<const std::string> frames, DeliveryReport report);

  os::EventLoop& loop_;
  Handlers handlers_;
  std::optional<KeepDelivery> keeping_;
  std::string kept_;  // the frames of it that have come
  bool kept_whole_ = false;
  std::deque<FetchDelivery> to_fetch_;
  std::map<std::string, std::pair<FetchDelivery, std::unique_ptr<DeliveryFetch>>> fetches_;
  std::deque<Fetched> fetched_;
  std::unique_ptr<DeliveryServer> server_;  // from the first delivery on
};

}  // namespace hora::launcher
