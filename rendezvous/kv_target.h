// SPDX-License-Identifier: Apache-2.0
// What a request's target asks of the key-value service.  [pure]
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace hora::rendezvous {

enum class Route {
  kValue,    // /scope/key[?wait=SECONDS]
  kBatch,    // /scope?batch[&count=N][&wait=SECONDS]
  kHealth,   // /healthz
  kMetrics,  // /metrics
  kBad,      // anything else
};

struct KvTarget {
  Route route = Route::kBad;
  std::string_view scope;  // opaque, as sent; views into the target
  std::string_view key;
  std::optional<std::chrono::milliseconds> wait;
  std::uint64_t count = 0;
};

// The result points into `target`.
KvTarget parse_kv_target(std::string_view target);

}  // namespace hora::rendezvous
