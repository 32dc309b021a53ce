// SPDX-License-Identifier: Apache-2.0
// Names are percent-encoded in both directions: Hora's server and Horovod's compare them as sent,
// and "/" would otherwise end a scope.
#include "rendezvous/http_store.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "rendezvous/base/text.h"
#include "rendezvous/contract/store_keys.h"
#include "rendezvous/http/writer.h"
#include "rendezvous/os/time_until.h"

namespace hora::rendezvous {

namespace {

using http::Method;

// The server ends a parked wait before the client gives up on it.
constexpr std::chrono::milliseconds kWaitSlack{500};
// The longest parked wait; after it the client asks again.
constexpr int kLongestWaitMs = 60'000;

std::string wait_parameter(Deadline deadline) {
  const int left_ms = std::min(os::milliseconds_until(deadline), kLongestWaitMs);
  // Milliseconds as a decimal fraction, padded to three digits.
  std::string text = std::to_string(left_ms % 1000);
  text.insert(0, 3 - text.size(), '0');
  return "wait=" + std::to_string(left_ms / 1000) + "." + text;
}

// For the answer of a wait that ends at `deadline`, which may be "never".
Deadline with_slack(Deadline deadline) {
  return deadline > Deadline::max() - kWaitSlack ? Deadline::max() : deadline + kWaitSlack;
}

// Maps a status to what the caller may do: only 408 and 503 are worth a retry.
Error unexpected(int status, std::string_view target) {
  const std::string what =
      "the rendezvous answered " + std::to_string(status) + " to " + quote(target);
  switch (status) {
    case 401:
      return make_error(ErrorCode::kDenied, what + ": the job's token was not accepted");
    case 403:
      return make_error(ErrorCode::kDenied, what + ": this host's address is not allowed");
    case 413:
      return make_error(ErrorCode::kFailed, what + ": the value is too long");
    case 507:
      return make_error(ErrorCode::kFailed, what + ": the store is full");
    case 408:
    case 503:
      return make_error(ErrorCode::kUnavailable, what);
    default:
      return make_error(ErrorCode::kFailed, what);
  }
}

Error timed_out(const std::string& what) {
  return make_error(ErrorCode::kTimedOut, what + ": timed out");
}

}  // namespace

HttpStore::HttpStore(HttpStoreOptions options)
    : options_(std::move(options)),
      client_({.host = options_.host,
               .port = options_.port,
               .bearer_token = options_.token,
               .make_stream = options_.make_stream}),
      // A cheap seed is enough: it only keeps many clients from retrying in step.
      jitter_(static_cast<unsigned>(::getpid()) ^
              static_cast<unsigned>(Clock::now().time_since_epoch().count())) {}

// --- names ---------------------------------------------------------------------------------------

std::string HttpStore::scope_of(std::string_view place) const {
  std::string scope = options_.root;
  if (!scope.empty() && !place.empty()) scope += '/';
  scope += place;
  return http::percent_encode(scope);
}

Result<std::string> HttpStore::value_target(std::string_view key) const {
  // The last slash: a place may have slashes of its own.
  const auto slash = key.rfind('/');
  const bool placed = slash != std::string_view::npos;
  const std::string scope = scope_of(placed ? key.substr(0, slash) : std::string_view());
  const std::string_view name = placed ? key.substr(slash + 1) : key;
  if (scope.empty() || name.empty()) {
    return make_error(ErrorCode::kUsage, "the key " + quote(key) + " is not PLACE/NAME");
  }
  return "/" + scope + "/" + http::percent_encode(name);
}

// --- requests ------------------------------------------------------------------------------------

bool HttpStore::pause(int round, Deadline deadline) {
  const auto now = Clock::now();
  if (now >= deadline) return false;
  // 10, 20, 40, ... 320 ms, each between a half and the whole of it.
  const int longest_ms = 10 << std::min(round, 5);
  std::uniform_int_distribution<int> part(longest_ms / 2, longest_ms);
  std::this_thread::sleep_until(std::min(deadline, now + std::chrono::milliseconds(part(jitter_))));
  return true;
}

// One request, repeated while the server does not answer at all.
Result<http::Response> HttpStore::send(Method method, const std::string& target,
                                       std::string_view body, Deadline deadline) {
  // Two limits: the caller's deadline, and `timeout` for a server that is not there at all.
  const Deadline last_try = std::min(deadline, Clock::now() + options_.timeout);
  for (int round = 0;; ++round) {
    ++requests_sent_;
    auto response = client_.send({.method = method, .target = target, .body = body}, deadline);
    if (response) {
      // Every response has it; the latest one counts.
      const bool ours = response->head.server.substr(0, 5) == "hora/";
      server_ = ours ? ServerKind::kHora : ServerKind::kPlain;
      return response;
    }
    // Every method of the protocol can be repeated without harm.
    if (response.error().code != ErrorCode::kUnavailable || !pause(round, last_try)) {
      return std::move(response).error().with_context("rendezvous");
    }
  }
}

Result<std::string> HttpStore::send_expecting(Method method, const std::string& target,
                                              std::string_view body, int status,
                                              Deadline deadline) {
  auto response = send(method, target, body, deadline);
  if (!response) return std::move(response).error();
  if (response->head.status != status) return unexpected(response->head.status, target);
  return std::move(response->body);
}

Status HttpStore::ask_what_server(Deadline deadline) {
  if (server_ != ServerKind::kUnknown) return Ok{};
  // The answer's Server field says it, whatever its status.
  auto response = send(Method::kGet, "/healthz", {}, deadline);
  if (!response) return std::move(response).error();
  return Ok{};
}

// Waits at the server where it can, and polls where it cannot.
Result<std::string> HttpStore::ask_until_there(const std::string& target, const std::string& what,
                                               Deadline deadline) {
  for (int round = 0;; ++round) {
    // An unknown server is asked to wait, too: to one that cannot, this is a key that it lacks.
    const bool waits = server_ != ServerKind::kPlain;
    const char separator = target.find('?') == std::string::npos ? '?' : '&';
    auto response = waits ? send(Method::kGet, target + separator + wait_parameter(deadline), {},
                                 with_slack(deadline))
                          : send(Method::kGet, target, {}, deadline);
    if (!response) {
      if (response.error().code == ErrorCode::kTimedOut) return timed_out(what);
      return std::move(response).error().with_context(what);
    }
    const int status = response->head.status;
    if (waits && server_ == ServerKind::kPlain) continue;  // it has just turned out to be that
    if (status == 200) return std::move(response->body);
    // 503: the server parks no more waits, so poll.
    if (status != 404 && status != 503) return unexpected(status, target).with_context(what);
    if (Clock::now() >= deadline) return timed_out(what);
    // Pause only between polls: a wait at the server was the pause.
    const bool waited_there = waits && status == 404;
    if (!waited_there && !pause(round, deadline)) return timed_out(what);
  }
}

// --- the store -----------------------------------------------------------------------------------

Status HttpStore::set(std::string_view key, std::string_view value, Deadline deadline) {
  auto target = value_target(key);
  if (!target) return std::move(target).error();
  auto done = send_expecting(Method::kPut, *target, value, 200, deadline);
  if (!done) return std::move(done).error();
  return Ok{};
}

Status HttpStore::set_all(std::string_view place, const KvEntries& entries, Deadline deadline) {
  // A plain server would store the batch as a value.
  HORA_TRY(ask_what_server(deadline));
  if (server_ == ServerKind::kHora) {
    const std::string target = "/" + scope_of(place) + "?batch";
    KvEntries encoded = entries;
    for (auto& entry : encoded) entry.first = http::percent_encode(entry.first);
    auto done = send_expecting(Method::kPut, target, encode_batch(encoded), 200, deadline);
    if (!done) return std::move(done).error();
    return Ok{};
  }
  // A plain server has no transaction: the keys appear one by one.
  for (const auto& [name, value] : entries) {
    HORA_TRY(set(std::string(place) + "/" + name, value, deadline));
  }
  return Ok{};
}

Result<std::optional<std::string>> HttpStore::get(std::string_view key, Deadline deadline) {
  auto target = value_target(key);
  if (!target) return std::move(target).error();
  auto response = send(Method::kGet, *target, {}, deadline);
  if (!response) return std::move(response).error();
  if (response->head.status == 404) return std::optional<std::string>();
  if (response->head.status != 200) return unexpected(response->head.status, *target);
  return std::optional<std::string>(std::move(response->body));
}

Result<std::string> HttpStore::wait(std::string_view key, Deadline deadline) {
  auto target = value_target(key);
  if (!target) return std::move(target).error();
  return ask_until_there(*target, "waiting for the key " + quote(key), deadline);
}

Result<KvEntries> HttpStore::gather(std::string_view place, std::size_t count, Deadline deadline) {
  HORA_TRY(ask_what_server(deadline));
  if (server_ == ServerKind::kPlain) return gather_by_names(place, count, deadline);
  const std::string target = "/" + scope_of(place) + "?batch&count=" + std::to_string(count);
  auto body = ask_until_there(
      target, "waiting for " + std::to_string(count) + " keys in " + quote(place), deadline);
  if (!body) return std::move(body).error();
  auto entries = decode_batch(*body);
  if (!entries) return std::move(entries).error().with_context("rendezvous");
  for (auto& entry : *entries) {
    // A name that does not decode stays as it is.
    auto name = http::percent_decode(entry.first);
    if (name) entry.first = std::move(*name);
  }
  return entries;
}

// A plain server cannot list a scope, so this waits for one name after the other.
Result<KvEntries> HttpStore::gather_by_names(std::string_view place, std::size_t count,
                                             Deadline deadline) {
  KvEntries entries;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = rank_key(static_cast<int>(i));
    auto value = wait(std::string(place) + "/" + name, deadline);
    if (!value) return std::move(value).error();
    entries.emplace_back(name, std::move(*value));
  }
  // By name, as Hora's server returns them: "10" comes before "2".
  std::sort(entries.begin(), entries.end());
  return entries;
}

Status HttpStore::remove(std::string_view key, Deadline deadline) {
  auto target = value_target(key);
  if (!target) return std::move(target).error();
  auto done = send_expecting(Method::kDelete, *target, {}, 200, deadline);
  if (!done) return std::move(done).error();
  return Ok{};
}

}  // namespace hora::rendezvous
