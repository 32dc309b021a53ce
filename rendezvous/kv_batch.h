// SPDX-License-Identifier: Apache-2.0
// Several keys in one body, for the routes that read or write a whole scope.  [pure]
//
//   batch := entry*      entry := key-length " " value-length "\n" key value
//
// Lengths are decimal counts of bytes; key and value are raw. docs/reference/http-api.md has it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::rendezvous {

using KvEntry = std::pair<std::string, std::string>;
using KvEntries = std::vector<KvEntry>;

inline constexpr std::string_view kBatchContentType = "application/x-hora-batch";

void append_batch_entry(std::string& out, std::string_view key, std::string_view value);
std::string encode_batch(const KvEntries& entries);
// An error names the byte and what was expected there.
Result<KvEntries> decode_batch(std::string_view body);

}  // namespace hora::rendezvous
