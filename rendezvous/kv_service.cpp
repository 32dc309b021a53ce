// A parked request is in three places: parked_ (by client), deadlines_ (by time) and one of its
// scope's waiting lists (by key or by count). Whoever ends a wait removes it from all three:
// finish_wait() and its caller when the value is there, forget() when the client is gone or the
// time is up.
#include "rendezvous/kv_service.h"

#include <algorithm>

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

}  // namespace

KvService::KvService(AccessPolicy access, const KvLimits& limits)
    : access_(std::move(access)), limits_(limits) {}
KvService::~KvService() = default;

void KvService::begin_round(const std::vector<ScopeSize>& scopes) {
  for (auto& [name, scope] : scopes_) {
    clear_values(scope);
    scope.expected = 0;
  }
  for (const ScopeSize& known : scopes) {
    if (known.size > 0) scope_named(known.scope).expected = known.size;
  }
  // Scopes with waiting requests stay: workers of the new round may have asked before it began.
  std::erase_if(scopes_, [](const auto& entry) {
    const Scope& scope = entry.second;
    return scope.expected == 0 && scope.waiting_for_key.empty() && scope.waiting_for_count.empty();
  });
}

KvService::Admission KvService::admit(const http::RequestHead& head, const IpAddress& peer,
                                      std::uint64_t receiving_bytes) {
  const bool known = access_.admits(head.authorization, peer);
  const auto refuse = [&](KvReply reply) {
    count_reply(reply.status);
    ++requests_[static_cast<std::size_t>(head.method)];
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
  const std::uint64_t used = stored_bytes_ + receiving_bytes;
  const std::uint64_t room = limits_.total_bytes > used ? limits_.total_bytes - used : 0;
  const std::uint64_t length = head.content_length.value_or(0);
  if (length > limits_.value_bytes) return refuse(status_only(413));
  // A chunked body has no length yet: its limit is enforced while it arrives.
  if (length > room) return refuse(status_only(507));
  return {.body_limit = std::min<std::uint64_t>(limits_.value_bytes, room), .known = known};
}

std::optional<KvReply> KvService::handle(ClientId client, const http::RequestHead& head,
                                         std::string body, Clock::time_point now) {
  ++requests_[static_cast<std::size_t>(head.method)];
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
  if (const Scope* scope = find_scope(target.scope)) {
    const auto found = scope->values.find(target.key);
    if (found != scope->values.end()) return KvReply{.status = 200, .body = found->second};
  }
  const ScopeWatch* watch = watch_of(target.scope);
  const bool asks = target.wait && target.wait->count() > 0;
  if (!may_wait || !(asks || (watch != nullptr && watch->holds))) return status_only(404);
  return park(client, target, now);
}

std::optional<KvReply> KvService::read_batch(ClientId client, const KvTarget& target, bool may_wait,
                                             Clock::time_point now) {
  const auto found = scopes_.find(target.scope);
  const std::size_t present = found == scopes_.end() ? 0 : found->second.values.size();
  if (present >= target.count) {
    KvReply reply{.status = 200, .content_type = kBatchContentType};
    if (present > 0) reply.body = batch_of(found->second);
    return reply;
  }
  if (!may_wait || !target.wait || target.wait->count() == 0) return status_only(404);
  return park(client, target, now);
}

std::optional<KvReply> KvService::park(ClientId client, const KvTarget& target,
                                       Clock::time_point now) {
  // One wait per connection: pipelined requests behind it are not read, so a second one is a bug of
  // the caller.
  if (parked_.size() >= limits_.parked_waits || parked_.contains(client)) return status_only(503);
  ++waits_;
  Scope& scope = scope_named(target.scope);
  Parked parked{.scope = std::string(target.scope), .count = target.count};
  if (target.route == Route::kValue) {
    parked.key = std::string(target.key);
    scope.waiting_for_key.emplace(*parked.key, client);
  } else {
    scope.waiting_for_count.emplace(target.count, client);
  }
  const ScopeWatch* watch = watch_of(target.scope);
  const bool holds = watch != nullptr && watch->holds;
  const auto wait = holds ? kForEver : std::min(*target.wait, limits_.longest_wait);
  parked.deadline = deadlines_.emplace(now + wait, client);
  parked_.emplace(client, std::move(parked));
  // Last: the launcher may act on a request that is completely parked.
  if (watch != nullptr && watch->on_wait) watch->on_wait(target.key);
  return std::nullopt;
}

const KvService::ScopeWatch* KvService::watch_of(std::string_view scope) const {
  const auto found = watches_.find(scope);
  return found == watches_.end() ? nullptr : &found->second;
}

void KvService::answer(std::string_view scope, std::string_view key, std::string value) {
  const auto found = scopes_.find(scope);
  if (found == scopes_.end()) return;
  // To the waiting requests only. The value is not stored, so a later request asks the launcher
  // again.
  wake_waiters_of_key(found->second, key, std::make_shared<const std::string>(std::move(value)));
  drop_if_unused(scope);
}

KvReply KvService::write_value(const KvTarget& target, std::string value) {
  if (value.size() > limits_.value_bytes) return status_only(413);
  if (!has_room(find_scope(target.scope), target.key, value.size())) return status_only(507);
  const ScopeWatch* watch = watch_of(target.scope);
  // Before the value is moved into the table.
  if (watch != nullptr && watch->on_write) watch->on_write(target.key, value);
  Scope& scope = scope_named(target.scope);
  store(scope, target.key, std::move(value));
  wake_waiters_of_count(scope);
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
  if (key_count_ + entries->size() > limits_.keys || stored_bytes_ + bytes > limits_.total_bytes) {
    return status_only(507);
  }
  if (entries->empty()) return status_only(200);
  Scope& scope = scope_named(target.scope);
  for (auto& [key, value] : *entries) store(scope, key, std::move(value));
  wake_waiters_of_count(scope);
  return status_only(200);
}

KvReply KvService::remove(const KvTarget& target) {
  const auto found = scopes_.find(target.scope);
  if (found == scopes_.end()) return status_only(200);
  Scope& scope = found->second;
  if (scope.expected == 0) {
    forget_value(scope, target.key);
    drop_if_unused(target.scope);
    return status_only(200);
  }
  // A known scope: one of its processes is done. A repeated request counts once.
  scope.done.emplace(target.key);
  if (scope.done.size() >= static_cast<std::size_t>(scope.expected)) clear_values(scope);
  return status_only(200);
}

void KvService::forget(ClientId client) {
  const auto found = parked_.find(client);
  if (found == parked_.end()) return;
  // A copy, because erasing the entry would take its key along.
  const Parked parked = std::move(found->second);
  parked_.erase(found);
  deadlines_.erase(parked.deadline);
  const auto erase_client = [&](auto& waiting, const auto& what) {
    auto [entry, end] = waiting.equal_range(what);
    // Several clients may wait for the same key.
    while (entry != end && entry->second != client) ++entry;
    if (entry != end) waiting.erase(entry);
  };
  Scope& scope = scope_named(parked.scope);
  if (parked.key) {
    erase_client(scope.waiting_for_key, *parked.key);
  } else {
    erase_client(scope.waiting_for_count, parked.count);
  }
  drop_if_unused(parked.scope);
}

void KvService::expire(Clock::time_point now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const ClientId client = deadlines_.begin()->second;
    forget(client);
    // 404, as for a key that does not exist: the client decides whether to ask again.
    ++waits_expired_;
    count_reply(404);
    ready_.push_back({client, status_only(404)});
  }
}

std::optional<Clock::time_point> KvService::next_deadline() const {
  if (deadlines_.empty()) return std::nullopt;
  return deadlines_.begin()->first;
}

Status KvService::set(std::string_view scope, std::string_view key, std::string value) {
  if (!has_room(find_scope(scope), key, value.size())) {
    return make_error(ErrorCode::kFailed, "the store is full");
  }
  Scope& where = scope_named(scope);
  store(where, key, std::move(value));
  wake_waiters_of_count(where);
  return Ok{};
}

std::shared_ptr<const std::string> KvService::get(std::string_view scope,
                                                  std::string_view key) const {
  const Scope* found = find_scope(scope);
  if (found == nullptr) return nullptr;
  const auto value = found->values.find(key);
  return value == found->values.end() ? nullptr : value->second;
}

void KvService::count_reply(int status) { ++replies_[status]; }

// --- the table ---------------------------------------------------------------------------------

KvService::Scope& KvService::scope_named(std::string_view name) {
  const auto found = scopes_.find(name);
  if (found != scopes_.end()) return found->second;
  return scopes_.emplace(std::string(name), Scope{}).first->second;
}

const KvService::Scope* KvService::find_scope(std::string_view name) const {
  const auto found = scopes_.find(name);
  return found == scopes_.end() ? nullptr : &found->second;
}

bool KvService::has_room(const Scope* scope, std::string_view key, std::size_t value_bytes) const {
  std::size_t freed = 0;
  bool is_new = true;
  if (scope != nullptr) {
    const auto found = scope->values.find(key);
    is_new = found == scope->values.end();
    if (!is_new) freed = key.size() + found->second->size();
  }
  if (is_new && key_count_ >= limits_.keys) return false;
  return stored_bytes_ - freed + key.size() + value_bytes <= limits_.total_bytes;
}

void KvService::store(Scope& scope, std::string_view key, std::string value) {
  // Shared with every reply that sends it: a value of many megabytes is copied for no reader, and
  // survives its replacement until all have it.
  auto shared = std::make_shared<const std::string>(std::move(value));
  const auto found = scope.values.find(key);
  if (found == scope.values.end()) {
    scope.values.emplace(std::string(key), shared);
    ++key_count_;
    stored_bytes_ += key.size();
  } else {
    stored_bytes_ -= found->second->size();
    found->second = shared;
  }
  stored_bytes_ += shared->size();
  scope.batch.reset();
  wake_waiters_of_key(scope, key, shared);
}

void KvService::wake_waiters_of_key(Scope& scope, std::string_view key, const Value& value) {
  const auto [first, last] = scope.waiting_for_key.equal_range(key);
  if (first == last) return;
  for (auto entry = first; entry != last; ++entry) {
    finish_wait(entry->second, {.status = 200, .body = value});
  }
  scope.waiting_for_key.erase(first, last);
}

void KvService::wake_waiters_of_count(Scope& scope) {
  // Sorted by count, so the requests that are complete are at the front.
  const auto last = scope.waiting_for_count.upper_bound(scope.values.size());
  if (last == scope.waiting_for_count.begin()) return;
  const Value body = batch_of(scope);  // one body for all of them
  for (auto entry = scope.waiting_for_count.begin(); entry != last; ++entry) {
    finish_wait(entry->second, {.status = 200, .body = body, .content_type = kBatchContentType});
  }
  scope.waiting_for_count.erase(scope.waiting_for_count.begin(), last);
}

void KvService::finish_wait(ClientId client, KvReply reply) {
  const auto found = parked_.find(client);
  deadlines_.erase(found->second.deadline);
  parked_.erase(found);
  count_reply(reply.status);
  ready_.push_back({client, std::move(reply)});
}

void KvService::forget_value(Scope& scope, std::string_view key) {
  const auto found = scope.values.find(key);
  if (found == scope.values.end()) return;
  stored_bytes_ -= found->first.size() + found->second->size();
  --key_count_;
  scope.values.erase(found);
  scope.batch.reset();
}

void KvService::clear_values(Scope& scope) {
  for (const auto& [key, value] : scope.values) stored_bytes_ -= key.size() + value->size();
  key_count_ -= scope.values.size();
  scope.values.clear();
  // The scope can be used for another round of the same processes.
  scope.done.clear();
  scope.batch.reset();
}

void KvService::drop_if_unused(std::string_view name) {
  const auto found = scopes_.find(name);
  if (found == scopes_.end()) return;
  const Scope& scope = found->second;
  if (scope.expected == 0 && scope.values.empty() && scope.waiting_for_key.empty() &&
      scope.waiting_for_count.empty()) {
    scopes_.erase(found);
  }
}

const KvService::Value& KvService::batch_of(Scope& scope) {
  if (!scope.batch) {
    std::string body;
    for (const auto& [key, value] : scope.values) append_batch_entry(body, key, *value);
    scope.batch = std::make_shared<const std::string>(std::move(body));
  }
  return scope.batch;
}

}  // namespace hora::rendezvous
