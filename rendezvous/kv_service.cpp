// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/kv_service.h"

#include <algorithm>

#include "rendezvous/kv_target.h"

namespace hora::rendezvous {

namespace {

using http::Method;

KvReply status_only(int status) { return {.status = status}; }

KvReply unauthorized() {
  return {.status = 401, .fields = "WWW-Authenticate: Bearer realm=\"hora\"\r\n"};
}

KvReply not_implemented() { return {.status = 501, .fields = "Allow: GET, HEAD, PUT, DELETE\r\n"}; }

KvReply text_reply(std::string text, std::string_view type) {
  return {.status = 200,
          .body = std::make_shared<const std::string>(std::move(text)),
          .content_type = type};
}

// A deadline like any other, so that held requests need no case of their own.
constexpr std::chrono::hours kForEver{24 * 365 * 10};

constexpr std::string_view kPlainText = "text/plain; charset=utf-8";
// Names the version of the format, which Prometheus asks for.
constexpr std::string_view kPrometheusText = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace

KvService::KvService(AccessPolicy access, const KvLimits& limits)
    : access_(std::move(access)), limits_(limits), table_(limits) {}
KvService::~KvService() = default;

void KvService::begin_round(const std::vector<ScopeSize>& scopes) { table_.begin_round(scopes); }

KvService::Admission KvService::admit(const http::RequestHead& head, const IpAddress& peer,
                                      std::uint64_t receiving_bytes) {
  const bool known = access_.admits(head.authorization, peer);
  const auto refuse = [&](KvReply reply) {
    count_reply(reply.status);
    metrics_.count_request(head.method);
    return Admission{.refusal = std::move(reply), .known = known};
  };
  const KvTarget target = parse_kv_target(head.target);
  // Refused by the head alone, before a byte of the body is kept. Only the health check needs no
  // authentication.
  if (target.route != Route::kHealth && !known) {
    return refuse(access_.token.empty() ? status_only(403) : unauthorized());
  }
  const bool has_body = head.chunked || head.content_length.value_or(0) > 0;
  if (!has_body) return {.known = known};
  if (head.method == Method::kOther) return refuse(not_implemented());
  const bool writes = target.route == Route::kValue || target.route == Route::kBatch;
  if (head.method != Method::kPut || !writes) {
    // 413: the client learns that a body does not belong there before it sends all of it.
    return refuse(status_only(head.method == Method::kPut ? 400 : 413));
  }
  // Bodies that are being received count as stored: many clients that send at the same time must
  // not exceed the limit together.
  const std::uint64_t room = table_.room_after(receiving_bytes);
  const std::uint64_t length = head.content_length.value_or(0);
  if (length > limits_.value_bytes) return refuse(status_only(413));
  // A chunked body has no length yet: its limit is enforced while it arrives.
  if (length > room) return refuse(status_only(507));
  return {.body_limit = std::min<std::uint64_t>(limits_.value_bytes, room), .known = known};
}

std::optional<KvReply> KvService::handle(ClientId client, const http::RequestHead& head,
                                         std::string body, Clock::time_point now) {
  metrics_.count_request(head.method);
  auto reply = answer(client, head, std::move(body), now);
  if (reply) count_reply(reply->status);
  return reply;
}

std::optional<KvReply> KvService::answer(ClientId client, const http::RequestHead& head,
                                         std::string body, Clock::time_point now) {
  if (head.method == Method::kOther) return not_implemented();
  const KvTarget target = parse_kv_target(head.target);
  const bool reads = head.method == Method::kGet || head.method == Method::kHead;
  switch (target.route) {
    case Route::kHealth:
      return reads ? text_reply("ok\n", kPlainText) : status_only(400);
    case Route::kMetrics:
      return reads ? metrics() : status_only(400);
    case Route::kBad:
      return status_only(400);
    case Route::kValue:
    case Route::kBatch:
      break;
  }
  if (target.scope.size() + target.key.size() > limits_.path_bytes) return status_only(414);
  const bool may_wait = head.method == Method::kGet;
  const bool batch = target.route == Route::kBatch;
  if (reads) {
    return batch ? read_batch(client, target, may_wait, now)
                 : read_value(client, target, may_wait, now);
  }
  // Parameters of a read: on a write they are a mistake.
  if (target.wait || target.count > 0) return status_only(400);
  if (head.method == Method::kDelete) return batch ? status_only(400) : remove(target);
  if (!head.content_length && !head.chunked) return status_only(411);
  return batch ? write_batch(target, body) : write_value(target, std::move(body));
}

std::optional<KvReply> KvService::read_value(ClientId client, const KvTarget& target, bool may_wait,
                                             Clock::time_point now) {
  if (auto value = table_.find(target.scope, target.key)) {
    return KvReply{.status = 200, .body = std::move(value)};
  }
  const ScopeWatch* watch = watch_of(target.scope);
  const bool asks = target.wait && target.wait->count() > 0;
  if (!may_wait || !(asks || (watch != nullptr && watch->holds))) return status_only(404);
  return park(client, target, now);
}

std::optional<KvReply> KvService::read_batch(ClientId client, const KvTarget& target, bool may_wait,
                                             Clock::time_point now) {
  if (table_.size(target.scope) >= target.count) {
    return KvReply{
        .status = 200, .body = table_.batch(target.scope), .content_type = kBatchContentType};
  }
  if (!may_wait || !target.wait || target.wait->count() == 0) return status_only(404);
  return park(client, target, now);
}

std::optional<KvReply> KvService::park(ClientId client, const KvTarget& target,
                                       Clock::time_point now) {
  // One wait per connection: pipelined requests after it are not read, so a second one is a bug of
  // the caller.
  if (waits_.count() >= limits_.parked_waits || waits_.has(client)) return status_only(503);
  metrics_.count_wait();
  const ScopeWatch* watch = watch_of(target.scope);
  const bool holds = watch != nullptr && watch->holds;
  const auto wait = holds ? kForEver : std::min(*target.wait, limits_.longest_wait);
  if (target.route == Route::kValue) {
    waits_.park_for_key(client, target.scope, target.key, now + wait);
  } else {
    waits_.park_for_count(client, target.scope, target.count, now + wait);
  }
  // Last: the launcher may act on a request that is completely parked.
  if (watch != nullptr && watch->on_wait) watch->on_wait(target.key);
  return std::nullopt;
}

const KvService::ScopeWatch* KvService::watch_of(std::string_view scope) const {
  const auto found = watches_.find(scope);
  return found == watches_.end() ? nullptr : &found->second;
}

void KvService::answer(std::string_view scope, std::string_view key, std::string value) {
  // To the waiting requests only. The value is not stored, so a later request asks the launcher
  // again.
  wake_waiters_of_key(scope, key, std::make_shared<const std::string>(std::move(value)));
}

KvReply KvService::write_value(const KvTarget& target, std::string value) {
  if (value.size() > limits_.value_bytes) return status_only(413);
  if (!table_.has_room(target.scope, target.key, value.size())) return status_only(507);
  const ScopeWatch* watch = watch_of(target.scope);
  // Before the value is moved into the table.
  if (watch != nullptr && watch->on_write) watch->on_write(target.key, value);
  wake_waiters_of_key(target.scope, target.key,
                      table_.store(target.scope, target.key, std::move(value)));
  wake_waiters_of_count(target.scope);
  return status_only(200);
}

KvReply KvService::write_batch(const KvTarget& target, std::string_view body) {
  auto entries = decode_batch(body);
  if (!entries) return status_only(400);
  // All or nothing: everything that can be refused is checked first.
  std::size_t bytes = 0;
  for (const auto& [key, value] : *entries) {
    if (key.empty()) return status_only(400);
    if (target.scope.size() + key.size() > limits_.path_bytes) return status_only(414);
    bytes += key.size() + value.size();
  }
  if (!table_.has_room_for(entries->size(), bytes)) return status_only(507);
  for (auto& [key, value] : *entries) {
    wake_waiters_of_key(target.scope, key, table_.store(target.scope, key, std::move(value)));
  }
  wake_waiters_of_count(target.scope);
  return status_only(200);
}

KvReply KvService::remove(const KvTarget& target) {
  table_.remove(target.scope, target.key);
  return status_only(200);
}

KvReply KvService::metrics() const {
  const std::size_t only_waited_for =
      waits_.count_scopes([this](std::string_view name) { return table_.contains(name); });
  return text_reply(metrics_.text({.keys = table_.key_count(),
                                   .stored_bytes = table_.stored_bytes(),
                                   .scopes = table_.scope_count() + only_waited_for,
                                   .parked_waits = waits_.count()}),
                    kPrometheusText);
}

void KvService::expire(Clock::time_point now) {
  for (const ClientId client : waits_.take_expired(now)) {
    // 404, as for a key that does not exist: the client decides whether to ask again.
    metrics_.count_expired_wait();
    finish_wait(client, status_only(404));
  }
}

Status KvService::set(std::string_view scope, std::string_view key, std::string value) {
  if (!table_.has_room(scope, key, value.size())) {
    return make_error(ErrorCode::kFailed, "the store is full");
  }
  wake_waiters_of_key(scope, key, table_.store(scope, key, std::move(value)));
  wake_waiters_of_count(scope);
  return Ok{};
}

void KvService::wake_waiters_of_key(std::string_view scope, std::string_view key,
                                    const KvTable::Value& value) {
  for (const ClientId client : waits_.take_waiting_for_key(scope, key)) {
    finish_wait(client, {.status = 200, .body = value});
  }
}

// All of them have the same body, which is made once.
void KvService::wake_waiters_of_count(std::string_view scope) {
  for (const ClientId client : waits_.take_waiting_for_count(scope, table_.size(scope))) {
    finish_wait(client,
                {.status = 200, .body = table_.batch(scope), .content_type = kBatchContentType});
  }
}

void KvService::finish_wait(ClientId client, KvReply reply) {
  count_reply(reply.status);
  ready_.push_back({client, std::move(reply)});
}

}  // namespace hora::rendezvous
