// SPDX-License-Identifier: Apache-2.0
// Fetches one delivery from another host of the job (protocol/delivery_proof.h): tries the sources
// in turn, all addresses of one at a time. What comes has the size and the hash that the launcher
// has told, or counts for nothing. On the loop's thread; destroyed, it leaves nothing behind.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/delivery_seal.h"
#include "launcher/protocol/delivery_proof.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

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
  // To one address of the source. Which of them lead to it shows only when it has proved to be of
  // the job.
  struct Attempt {
    os::Fd fd;
    bool connected = false;
    std::string nonce;
    std::string heard;
  };

  void try_next();
  void try_source();
  void try_later();
  void begin(const std::string& address, int port);
  void on_event(Attempt& attempt);
  bool greet(Attempt& attempt);
  bool hear_challenge(Attempt& attempt);
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
  Clock::time_point patient_until_;  // with a source that is busy
  std::chrono::milliseconds pause_;  // before it is asked again
  bool going_ = false;               // it has said so
  std::vector<std::unique_ptr<Attempt>> attempts_;
  Attempt* chosen_ = nullptr;             // it sends
  std::optional<DeliveryOpener> opener_;  // of what it sends
  std::string last_refusal_;              // of an address
  std::string frames_;
  std::vector<std::string> refusals_;
  Clock::time_point heard_at_;
  Clock::time_point deadline_;
  os::EventLoop::TimerId timer_ = 0;
};

}  // namespace hora::launcher
