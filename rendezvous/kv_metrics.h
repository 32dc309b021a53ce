// SPDX-License-Identifier: Apache-2.0
// The counters of the key-value service, and the text of /metrics. [pure]
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "rendezvous/http/message.h"

namespace hora::rendezvous {

// The counters of the sockets.
struct ConnectionFigures {
  std::uint64_t open = 0;
  std::uint64_t accepted = 0;
  std::uint64_t evicted = 0;  // closed to make room for others
  std::uint64_t timed_out = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t sent_bytes = 0;
};

class KvMetrics {
 public:
  // The sizes of the service when the text is made.
  struct Levels {
    std::size_t keys = 0;
    std::size_t stored_bytes = 0;
    std::size_t scopes = 0;
    std::size_t parked_waits = 0;
  };

  void count_request(http::Method method) { ++requests_[static_cast<std::size_t>(method)]; }
  void count_reply(int status) { ++replies_[status]; }
  void count_wait() { ++waits_; }
  void count_expired_wait() { ++waits_expired_; }
  ConnectionFigures& connections() { return connections_; }

  // In the Prometheus exposition format.
  std::string text(const Levels& levels) const;

 private:
  static constexpr std::size_t kMethods = 5;
  std::array<std::uint64_t, kMethods> requests_{};
  std::map<int, std::uint64_t> replies_;
  std::uint64_t waits_ = 0;
  std::uint64_t waits_expired_ = 0;
  ConnectionFigures connections_;
};

}  // namespace hora::rendezvous
