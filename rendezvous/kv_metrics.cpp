// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/kv_metrics.h"

#include <string_view>
#include <utility>

namespace hora::rendezvous {

namespace {

// Each family needs its HELP and TYPE lines once, before all of its samples.
class MetricsText {
 public:
  void family(std::string_view name, std::string_view type, std::string_view help) {
    out_.append("# HELP hora_rendezvous_").append(name).append(" ").append(help).append("\n");
    out_.append("# TYPE hora_rendezvous_").append(name).append(" ").append(type).append("\n");
  }
  void sample(std::string_view name, std::uint64_t value, std::string_view labels = {}) {
    out_.append("hora_rendezvous_").append(name).append(labels).append(" ");
    out_.append(std::to_string(value)).append("\n");
  }
  void single(std::string_view name, std::string_view type, std::string_view help,
              std::uint64_t value) {
    family(name, type, help);
    sample(name, value);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

}  // namespace

std::string KvMetrics::text(const Levels& levels) const {
  MetricsText text;
  text.family("requests_total", "counter", "Requests, by method.");
  // Also methods that have not occurred: a counter should exist from the start.
  for (std::size_t i = 0; i < kMethods; ++i) {
    const auto name = http::method_name(static_cast<http::Method>(i));
    text.sample("requests_total", requests_[i], "{method=\"" + std::string(name) + "\"}");
  }
  text.family("replies_total", "counter", "Replies, by status.");
  for (const auto& [status, count] : replies_) {
    text.sample("replies_total", count, "{status=\"" + std::to_string(status) + "\"}");
  }
  text.single("keys", "gauge", "Keys in the store.", levels.keys);
  text.single("stored_bytes", "gauge", "Bytes of all keys and values.", levels.stored_bytes);
  text.single("scopes", "gauge", "Scopes that are known or in use.", levels.scopes);
  text.single("parked_waits", "gauge", "Requests that wait for a key.", levels.parked_waits);
  text.single("waits_total", "counter", "Requests that had to wait.", waits_);
  text.single("waits_expired_total", "counter", "Waits that ended without the key.",
              waits_expired_);
  const ConnectionFigures& figures = connections_;
  text.single("connections", "gauge", "Open connections.", figures.open);
  text.single("connections_accepted_total", "counter", "Connections accepted.", figures.accepted);
  text.single("connections_evicted_total", "counter", "Connections closed to make room for others.",
              figures.evicted);
  text.single("connections_timed_out_total", "counter", "Connections closed for being too slow.",
              figures.timed_out);
  text.single("received_bytes_total", "counter", "Bytes received.", figures.received_bytes);
  text.single("sent_bytes_total", "counter", "Bytes sent.", figures.sent_bytes);
  return text.take();
}

}  // namespace hora::rendezvous
