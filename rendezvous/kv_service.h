// SPDX-License-Identifier: Apache-2.0
// The key-value store of a job, as a service: requests and times go in, replies come out. It knows
// no socket and no clock; kv_server.h puts it on the network. [pure] A request that waits for a key
// is parked: handle() returns nothing, and the reply turns up in take_ready() once the key exists,
// the wait is over (expire) or never, when the client has gone (forget). docs/reference/http-api.md
// describes every route and status.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/address.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/contract/store_keys.h"
#include "rendezvous/http/message.h"
#include "rendezvous/kv_metrics.h"
#include "rendezvous/kv_table.h"
#include "rendezvous/kv_target.h"
#include "rendezvous/kv_waits.h"

namespace hora::rendezvous {

struct KvReply {
  int status = 200;
  std::shared_ptr<const std::string> body = {};  // null: empty
  std::string_view content_type = {};            // a literal; empty: none
  std::string_view fields = {};                  // literal further header lines, each with its CRLF
};

class KvService {
 public:
  using ClientId = KvWaits::ClientId;  // one connection; it has at most one request parked
  struct Ready {
    ClientId client;
    KvReply reply;
  };

  explicit KvService(AccessPolicy access, const KvLimits& limits = {});
  ~KvService();
  KvService(const KvService&) = delete;
  KvService& operator=(const KvService&) = delete;

  // A new job or round: forgets all values, and takes the scopes whose size is known. A DELETE in
  // such a scope says "this process is done"; once `size` have, the scope's values go.
  void begin_round(const std::vector<ScopeSize>& scopes);

  // Looks at a request before its body: either a refusal, or how long the body may be.
  // `receiving_bytes`: of all bodies that are on their way.
  struct Admission {
    std::optional<KvReply> refusal = {};
    std::uint64_t body_limit = 0;
    bool known = false;  // has shown that it may use the store
  };
  Admission admit(const http::RequestHead& head, const IpAddress& peer,
                  std::uint64_t receiving_bytes);
  // Clients with this address may use the store without a token.
  bool knows(const IpAddress& peer) const { return access_.admits({}, peer); }

  // Whether bodies on their way, together with what is stored, are more than may be held.
  bool over_capacity(std::uint64_t receiving_bytes) const {
    return table_.stored_bytes() + receiving_bytes > limits_.total_bytes;
  }

  // An admitted request, whole. Nothing: it is parked.
  std::optional<KvReply> handle(ClientId client, const http::RequestHead& head, std::string body,
                                Clock::time_point now);
  // The client has gone; its parked request, if any, will have no reply.
  void forget(ClientId client) { waits_.forget(client); }

  // Ends the waits that are over: 404, as for a key that is not there.
  void expire(Clock::time_point now);
  std::optional<Clock::time_point> next_deadline() const { return waits_.next_deadline(); }
  // Replies to parked requests, in the order in which they came about. Empties the list.
  std::vector<Ready> take_ready() { return std::exchange(ready_, {}); }
  bool has_ready() const { return !ready_.empty(); }

  // A scope whose requests the launcher wants to know of. The functions are called in the middle of
  // a request and must not call the service.
  struct ScopeWatch {
    std::function<void(std::string_view key)> on_wait;  // a GET is parked
    std::function<void(std::string_view key, const std::string& value)> on_write;
    bool holds = false;  // a GET waits for its key, without asking to and for ever
  };
  void watch_scope(std::string scope, ScopeWatch watch) {
    watches_[std::move(scope)] = std::move(watch);
  }
  // The reply to the requests that wait for the key; it is not kept.
  void answer(std::string_view scope, std::string_view key, std::string value);
  void admit_also(const Cidr& network) { access_.allow.push_back(network); }

  // For the launcher's own use, not by way of a request.
  Status set(std::string_view scope, std::string_view key, std::string value);
  std::shared_ptr<const std::string> get(std::string_view scope, std::string_view key) const {
    return table_.find(scope, key);
  }

  // A reply that the sockets' side gave on its own (malformed, timed out).
  void count_reply(int status) { metrics_.count_reply(status); }
  ConnectionFigures& connections() { return metrics_.connections(); }

  std::size_t key_count() const { return table_.key_count(); }
  std::size_t stored_bytes() const { return table_.stored_bytes(); }
  std::size_t parked_count() const { return waits_.count(); }

 private:
  std::optional<KvReply> answer(ClientId client, const http::RequestHead& head, std::string body,
                                Clock::time_point now);
  std::optional<KvReply> read_value(ClientId client, const KvTarget& target, bool may_wait,
                                    Clock::time_point now);
  std::optional<KvReply> read_batch(ClientId client, const KvTarget& target, bool may_wait,
                                    Clock::time_point now);
  std::optional<KvReply> park(ClientId client, const KvTarget& target, Clock::time_point now);
  KvReply write_value(const KvTarget& target, std::string value);
  KvReply write_batch(const KvTarget& target, std::string_view body);
  KvReply remove(const KvTarget& target);
  KvReply metrics() const;

  // The values of a key or of a whole scope have come: answers the requests that wait for them.
  void wake_waiters_of_key(std::string_view scope, std::string_view key,
                           const KvTable::Value& value);
  void wake_waiters_of_count(std::string_view scope);
  void finish_wait(ClientId client, KvReply reply);
  const ScopeWatch* watch_of(std::string_view scope) const;

  AccessPolicy access_;
  KvLimits limits_;
  KvTable table_;
  KvWaits waits_;
  KvMetrics metrics_;
  std::map<std::string, ScopeWatch, std::less<>> watches_;
  std::vector<Ready> ready_;
};

}  // namespace hora::rendezvous
