// SPDX-License-Identifier: Apache-2.0
// Fetches deliveries that other hosts of the job have, and keeps those that the launcher names for
// others.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/protocol/delivery.h"
#include "launcher/protocol/frame.h"
#include "launcher/protocol/messages.h"
#include "launcher/store/peer_server.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// Fetches one delivery from another host of the job (protocol/delivery.h): tries the sources
// in turn, all addresses of one at a time. The data must have the size and the hash that the
// launcher announced, or it is discarded. On the loop's thread; the destructor releases everything.
class DeliveryFetch {
 public:
  struct Outcome {
    std::shared_ptr<const std::string> frames;  // null: no source was of use
    std::vector<std::string> refusals;          // why each of the first sources was not
  };
  DeliveryFetch(os::EventLoop& loop, FetchDelivery order, std::function<void(Outcome)> on_done);
  ~DeliveryFetch();
  DeliveryFetch(const DeliveryFetch&) = delete;
  DeliveryFetch& operator=(const DeliveryFetch&) = delete;

  void start();  // `on_done` is called once, from here or later; it may destroy this object

 private:
  // A connection to one address of the source. Whether it leads to the source is known only when it
  // has proved to be of the job.
  struct Attempt {
    os::Fd fd;
    bool connected = false;
    std::string nonce;
    std::string received;
  };

  void try_next();
  void try_source();
  void try_later();
  void begin(const std::string& address, int port);
  void on_event(Attempt& attempt);
  bool greet(Attempt& attempt);
  bool receive_challenge(Attempt& attempt);
  void receive();
  void give_up(Attempt& attempt);  // last_refusal_ says why
  void refuse(std::string why);
  void watch_time();
  void close_all();
  void finish(std::shared_ptr<const std::string> frames);

  os::EventLoop& loop_;
  FetchDelivery order_;
  std::function<void(Outcome)> on_done_;
  std::size_t source_ = 0;           // the one that is tried
  Clock::time_point busy_until_;     // with a source that is busy
  std::chrono::milliseconds pause_;  // before it is asked again
  bool going_ = false;               // it has said so
  std::vector<std::unique_ptr<Attempt>> attempts_;
  Attempt* chosen_ = nullptr;             // it sends
  std::optional<DeliveryOpener> opener_;  // of what it sends
  std::string last_refusal_;              // of an address
  std::string frames_;
  std::vector<std::string> refusals_;
  Clock::time_point received_at_;
  Clock::time_point deadline_;
  os::EventLoop::TimerId timer_ = 0;
};

// This host's part in passing deliveries on: keeps those that the launcher names, fetches those
// that other hosts have, serves both. They are kept in memory, until the launcher says that every
// host has what it needs. On the loop's thread.
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
