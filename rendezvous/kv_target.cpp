// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/kv_target.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "rendezvous/base/encoding.h"
#include "rendezvous/base/text.h"

namespace hora::rendezvous {

namespace {

// True when the field is "Bearer TOKEN" with the job's token.
bool shows_token(std::string_view authorization, std::string_view token) {
  constexpr std::string_view kScheme = "Bearer ";
  // The scheme's name is case-insensitive (RFC 9110, 11.1) and not secret; the token is.
  if (!equals_ignoring_case(authorization.substr(0, kScheme.size()), kScheme)) return false;
  return equals_in_constant_time(trim(authorization.substr(kScheme.size())), token);
}

}  // namespace

bool AccessPolicy::admits(std::string_view authorization, const IpAddress& peer) const {
  if (!token.empty() && shows_token(authorization, token)) return true;
  // Only for workers that cannot send a token (Horovod's own).
  return std::any_of(allow.begin(), allow.end(),
                     [&](const Cidr& network) { return network.contains(peer); });
}

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

// Strict, because the server stores the result: every byte has to belong to an entry.
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

// Scopes and keys stay as sent, undecoded: clients that encode a name in the same way share a key,
// and the server never has to interpret a name.

namespace {

// A proxy or an odd client may send "http://host:port/path" (RFC 7230, 5.3.2).
std::string_view without_origin(std::string_view target) {
  constexpr std::string_view kScheme = "http://";
  if (!equals_ignoring_case(target.substr(0, kScheme.size()), kScheme)) return target;
  const auto path = target.find('/', kScheme.size());
  return path == std::string_view::npos ? std::string_view("/") : target.substr(path);
}

// Parses seconds: "30", "0.25". The caller caps them; this limits them to a year, which any clock
// can hold.
std::optional<std::chrono::milliseconds> parse_seconds(std::string_view text) {
  double seconds = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] =
      std::from_chars(text.data(), end, seconds, std::chars_format::fixed);
  if (error != std::errc{} || stopped != end || !std::isfinite(seconds) || std::signbit(seconds)) {
    return std::nullopt;
  }
  constexpr double kYear = 365.0 * 24 * 3600;
  return std::chrono::milliseconds(
      // NOLINTNEXTLINE(bugprone-incorrect-roundings): llround() would load libm for itself.
      static_cast<std::int64_t>(std::min(seconds, kYear) * 1000 + 0.5));
}

// False for a parameter that is malformed or meaningless on this route.
bool read_parameter(std::string_view parameter, KvTarget& out, bool& batch) {
  const auto equals = parameter.find('=');
  const std::string_view name = parameter.substr(0, equals);
  const std::string_view value =
      equals == std::string_view::npos ? std::string_view() : parameter.substr(equals + 1);
  // Unknown parameters are errors: a misspelt "wait" must not turn into an endless poll.
  if (name == "wait") {
    out.wait = parse_seconds(value);
    return out.wait.has_value();
  }
  if (name == "batch") {
    batch = true;
    return equals == std::string_view::npos;
  }
  if (name == "count") {
    const auto count = parse_int<std::uint64_t>(value);
    out.count = count.value_or(0);
    return count.has_value();
  }
  return false;
}

}  // namespace

KvTarget parse_kv_target(std::string_view target) {
  KvTarget out;
  std::string_view path = without_origin(target);
  std::string_view query;
  const auto question = path.find('?');
  const bool has_query = question != std::string_view::npos;
  if (has_query) {
    query = path.substr(question + 1);
    path = path.substr(0, question);
  }
  // Every early return leaves the route at kBad.
  if (path.empty() || path.front() != '/') return out;
  path.remove_prefix(1);
  // Only without a query: a scope may have these names as well.
  if (!has_query && path == "healthz") {
    out.route = Route::kHealth;
    return out;
  }
  if (!has_query && path == "metrics") {
    out.route = Route::kMetrics;
    return out;
  }
  const auto slash = path.find('/');
  // The first slash ends the scope.
  out.scope = path.substr(0, slash);
  if (out.scope.empty()) return out;

  bool batch = false;
  while (has_query) {
    const auto next = query.find('&');
    if (!read_parameter(query.substr(0, next), out, batch)) return out;
    if (next == std::string_view::npos) break;
    query.remove_prefix(next + 1);
  }
  // A scope alone is only meaningful as a batch.
  if (slash == std::string_view::npos) {
    if (batch) out.route = Route::kBatch;
    return out;
  }
  out.key = path.substr(slash + 1);
  // A key has no slash of its own: clients percent-encode it.
  const bool plain = !out.key.empty() && out.key.find('/') == std::string_view::npos;
  if (plain && !batch && out.count == 0) out.route = Route::kValue;
  return out;
}

}  // namespace hora::rendezvous
