// SPDX-License-Identifier: Apache-2.0
// The messages of the real Horovod's elastic workers besides HTTP. [pure] A worker leaves in the
// store where it can be notified: base64 of a pickle of (addresses, key). A pickle can make its
// reader do anything; this reader knows dictionaries, lists, tuples, texts, numbers and bytes, and
// refuses the rest. The worker gets one of two fixed pickles.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/address.h"
#include "rendezvous/base/result.h"

namespace hora::launcher::elastic {

struct WorkerContact {
  std::vector<Endpoint> endpoints;  // of all its interfaces, in the order of the worker
  std::string key;                  // both sides sign by it
  friend bool operator==(const WorkerContact&, const WorkerContact&) = default;
};
Result<WorkerContact> parse_worker_contact(std::string_view base64);

// A whole message: digest, length, body. result: 1 hosts have gone, 2 have come, 3 both.
std::string hosts_updated_message(std::string_view key, std::int64_t timestamp, int result);

// The body of an answer that is complete and signed; nothing: more bytes are needed. The Error is
// an answer without the right key.
Result<std::optional<std::string>> read_signed_message(std::string_view key,
                                                       std::string_view bytes);

}  // namespace hora::launcher::elastic
