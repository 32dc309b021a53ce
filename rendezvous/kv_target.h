// SPDX-License-Identifier: Apache-2.0
// What a request to the key-value server asks for, and whether it may.  [pure]
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/address.h"
#include "rendezvous/base/result.h"

namespace hora::rendezvous {

// Which requests may use the store.

// Admits a request that carries the job's token or comes from an address of `allow`. An empty
// policy admits no request.
struct AccessPolicy {
  std::string token;        // empty: no token admits
  std::vector<Cidr> allow;  // for workers that cannot show a token

  // `authorization` is the field's whole value. The time that this takes does not reveal how much
  // of a token was right.
  bool admits(std::string_view authorization, const IpAddress& peer) const;
};

// Several keys in one body, for the routes that read or write a whole scope.
//   batch := entry*      entry := key-length " " value-length "\n" key value
// Lengths are decimal counts of bytes; key and value are raw. docs/reference/http-api.md has it.

using KvEntry = std::pair<std::string, std::string>;
using KvEntries = std::vector<KvEntry>;

inline constexpr std::string_view kBatchContentType = "application/x-hora-batch";

void append_batch_entry(std::string& out, std::string_view key, std::string_view value);
std::string encode_batch(const KvEntries& entries);
// An error names the byte and what was expected there.
Result<KvEntries> decode_batch(std::string_view body);

// What a request's target asks of the key-value service.

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
