// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/kv_batch.h"

#include "rendezvous/base/text.h"

namespace hora::rendezvous {

void append_batch_entry(std::string& out, std::string_view key, std::string_view value) {
  out.append(std::to_string(key.size())).append(" ").append(std::to_string(value.size()));
  // The lengths make escaping unnecessary, whatever the bytes are.
  out.append("\n").append(key).append(value);
}

std::string encode_batch(const KvEntries& entries) {
  std::string body;
  for (const auto& [key, value] : entries) append_batch_entry(body, key, value);
  return body;
}

namespace {

// Two lengths of at most ten digits each, a blank, a line end.
constexpr std::size_t kMaxLine = 22;

// The offset lets a client's author find the wrong byte.
Error malformed(std::size_t offset, std::string_view expected) {
  return make_error(ErrorCode::kUsage, "batch, byte " + std::to_string(offset) + ": expected " +
                                           std::string(expected));
}

}  // namespace

// Strict, because the server stores what comes out: every byte has to belong to an entry.
Result<KvEntries> decode_batch(std::string_view body) {
  KvEntries entries;
  std::size_t at = 0;
  while (at < body.size()) {
    const std::string_view rest = body.substr(at);
    // Bounded: a body without a line end must not be searched to its end for every entry.
    const auto line_end = rest.substr(0, kMaxLine).find('\n');
    if (line_end == std::string_view::npos) return malformed(at, "KEY-LENGTH VALUE-LENGTH");
    const std::string_view line = rest.substr(0, line_end);
    const auto blank = line.find(' ');
    if (blank == std::string_view::npos) return malformed(at, "KEY-LENGTH VALUE-LENGTH");
    const auto key_length = parse_int<std::uint32_t>(line.substr(0, blank));
    const auto value_length = parse_int<std::uint32_t>(line.substr(blank + 1));
    if (!key_length || !value_length) return malformed(at, "KEY-LENGTH VALUE-LENGTH");
    const std::string_view data = rest.substr(line_end + 1);
    // 64 bits: the sum of two 32-bit lengths may not fit into 32.
    const std::uint64_t needed = std::uint64_t{*key_length} + *value_length;
    if (data.size() < needed) return malformed(body.size(), "the rest of an entry");
    entries.emplace_back(std::string(data.substr(0, *key_length)),
                         std::string(data.substr(*key_length, *value_length)));
    at += line_end + 1 + static_cast<std::size_t>(needed);
  }
  return entries;
}

}  // namespace hora::rendezvous
