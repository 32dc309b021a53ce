// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/kv_service.h"

#include <string>

#include "rendezvous/kv_target.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::rendezvous;
using namespace std::chrono_literals;
using http::Method;

namespace {

IpAddress address(std::string_view text) { return *parse_ip_address(text); }

AccessPolicy open_to_all() { return {.token = "", .allow = {*parse_cidr("0.0.0.0/0")}}; }

// A service with a clock that the test moves.
struct Fixture {
  explicit Fixture(AccessPolicy access = open_to_all(), const KvLimits& limits = {})
      : service(std::move(access), limits) {}

  // As the server does it: admit, then handle. 0: parked.
  int send(Method method, std::string target, std::string body = {},
           KvService::ClientId client = 1) {
    http::RequestHead head;
    head.method = method;
    head.target = std::move(target);
    head.authorization = authorization;
    if (method == Method::kPut || !body.empty()) head.content_length = body.size();
    auto admission = service.admit(head, peer, receiving_bytes);
    if (admission.refusal) return remember(std::move(*admission.refusal));
    if (body.size() > admission.body_limit) return 413;  // the reader would say so
    auto reply = service.handle(client, head, std::move(body), now);
    return reply ? remember(std::move(*reply)) : 0;
  }
  int get(std::string target, KvService::ClientId client = 1) {
    return send(Method::kGet, std::move(target), {}, client);
  }
  int put(std::string target, std::string body) {
    return send(Method::kPut, std::move(target), std::move(body));
  }
  int del(std::string target) { return send(Method::kDelete, std::move(target)); }

  std::string body() const { return last.body ? *last.body : std::string(); }

  int remember(KvReply reply) {
    last = std::move(reply);
    return last.status;
  }

  KvService service;
  Clock::time_point now{};
  IpAddress peer = address("10.0.0.9");
  std::string authorization;
  std::uint64_t receiving_bytes = 0;
  KvReply last;
};

}  // namespace

TEST_CASE("values are kept as they are, and overwritten silently") {
  Fixture f;
  CHECK(f.get("/global/0") == 404);
  CHECK(f.body().empty());
  CHECK(f.put("/global/0", std::string("a\0b", 3)) == 200);
  CHECK(f.body().empty());
  CHECK(f.get("/global/0") == 200);
  CHECK(f.body() == std::string("a\0b", 3));
  CHECK(f.put("/global/0", "") == 200);
  CHECK(f.get("/global/0") == 200);
  CHECK(f.body().empty());
  CHECK(f.get("/Global/0") == 404);
  CHECK(f.get("/global/%30") == 404);  // nothing is decoded
}

TEST_CASE("paths have exactly two parts") {
  Fixture f;
  for (const auto* target : {"/",
                             "/global",
                             "/global/",
                             "//0",
                             "/a/b/c",
                             "",
                             "*",
                             "global/0",
                             "/a/b?",
                             "/a/b?x=1",
                             "/a/b?wait=",
                             "/a/b?wait=-1",
                             "/a/b?wait=1x",
                             "/a/b?wait=nan",
                             "/a/b?wait=inf",
                             "/a/b?count=1",
                             "/a/b?batch",
                             "/a?batch=1",
                             "/a?count=1",
                             "/a?batch&count=x",
                             "/healthz?x"}) {
    CAPTURE(target);
    CHECK(f.get(target) == 400);
    CHECK(f.body().empty());
  }
  CHECK(f.put("/global", "x") == 400);
  CHECK(f.put("/a/b?wait=1", "x") == 400);
  CHECK(f.del("/global") == 400);
  CHECK(f.service.key_count() == 0);
}

TEST_CASE("a proxy's absolute target means its path") {
  Fixture f;
  CHECK(f.put("http://10.0.0.1:80/a/b", "x") == 200);
  CHECK(f.get("/a/b") == 200);
}

TEST_CASE("other methods") {
  Fixture f;
  f.put("/a/b", "xyz");
  CHECK(f.send(Method::kHead, "/a/b") == 200);
  CHECK(f.body() == "xyz");                             // the server sends the length only
  CHECK(f.send(Method::kHead, "/a/c?wait=10") == 404);  // never waits
  CHECK(f.send(Method::kOther, "/a/b") == 501);
  CHECK(f.last.fields.find("Allow:") == 0);
  CHECK(f.send(Method::kOther, "/a/b", "body") == 501);
  CHECK(f.send(Method::kGet, "/a/b", "body") == 413);
  CHECK(f.send(Method::kOther, "/etc/passwd") == 501);
}

TEST_CASE("PUT needs a length or chunks") {
  Fixture f;
  http::RequestHead head;
  head.method = Method::kPut;
  head.target = "/a/b";
  CHECK(f.service.handle(1, head, "", f.now)->status == 411);
  head.chunked = true;
  CHECK(f.service.handle(1, head, "abc", f.now)->status == 200);
  CHECK(*f.service.get("a", "b") == "abc");
}

TEST_CASE("DELETE in a scope of no known size removes the key") {
  Fixture f;
  f.put("/x/1", "a");
  f.put("/x/2", "b");
  CHECK(f.del("/x/1") == 200);
  CHECK(f.get("/x/1") == 404);
  CHECK(f.get("/x/2") == 200);
  CHECK(f.del("/x/1") == 200);
  CHECK(f.del("/never/was") == 200);
  CHECK(f.del("/x/2") == 200);
  CHECK(f.service.key_count() == 0);
  CHECK(f.service.stored_bytes() == 0);
}

TEST_CASE("DELETE in a known scope counts those that are done") {
  Fixture f;
  f.service.begin_round({{"global", 2}, {"local_a", 2}});
  for (const auto* scope : {"global", "local_a"}) {
    f.put("/" + std::string(scope) + "/0", "x");
    f.put("/" + std::string(scope) + "/1", "y");
  }
  CHECK(f.del("/local_a/0") == 200);
  CHECK(f.get("/local_a/0") == 200);  // the value stays until all are done
  CHECK(f.del("/global/0") == 200);
  CHECK(f.del("/global/0") == 200);  // a repeated request is not another process
  CHECK(f.get("/global/1") == 200);
  CHECK(f.del("/global/1") == 200);
  CHECK(f.get("/global/0") == 404);
  CHECK(f.get("/global/1") == 404);
  // The other scope's count did not suffer.
  CHECK(f.del("/local_a/1") == 200);
  CHECK(f.get("/local_a/0") == 404);
  // The scope can be used once more, with the same size.
  f.put("/global/0", "again");
  f.del("/global/0");
  CHECK(f.get("/global/0") == 200);
  f.del("/global/1");
  CHECK(f.get("/global/0") == 404);
  CHECK(f.service.stored_bytes() == 0);
}

TEST_CASE("a new round forgets values and sizes") {
  Fixture f;
  f.service.begin_round({{"global", 2}});
  f.put("/global/0", "x");
  f.put("/other/0", "x");
  f.del("/global/0");
  f.service.begin_round({{"global", 1}});
  CHECK(f.get("/global/0") == 404);
  CHECK(f.get("/other/0") == 404);
  CHECK(f.service.key_count() == 0);
  f.put("/global/0", "x");
  f.del("/global/7");  // one is enough now
  CHECK(f.get("/global/0") == 404);
}

TEST_CASE("a GET waits for its key") {
  Fixture f;
  CHECK(f.get("/s/k?wait=5", 7) == 0);
  CHECK(f.get("/s/k?wait=5", 8) == 0);
  CHECK(f.get("/s/other?wait=5", 9) == 0);
  CHECK(f.service.parked_count() == 3);
  CHECK(f.service.key_count() == 0);
  CHECK(f.put("/s/k", "value") == 200);
  const auto ready = f.service.take_ready();
  REQUIRE(ready.size() == 2);
  CHECK(ready[0].client == 7);
  CHECK(ready[0].reply.status == 200);
  CHECK(*ready[0].reply.body == "value");
  CHECK(ready[1].client == 8);
  CHECK(f.service.parked_count() == 1);
  CHECK_FALSE(f.service.has_ready());
  CHECK(f.get("/s/k?wait=5", 7) == 200);  // there already: at once
}

TEST_CASE("a wait ends with 404 at its time, not before") {
  Fixture f;
  CHECK(f.get("/s/k?wait=0", 1) == 404);
  CHECK(f.get("/s/k?wait=2", 2) == 0);
  CHECK(f.get("/s/k?wait=1.5", 3) == 0);
  REQUIRE(f.service.next_deadline());
  CHECK(*f.service.next_deadline() == f.now + 1500ms);
  f.service.expire(f.now + 1499ms);
  CHECK_FALSE(f.service.has_ready());
  f.service.expire(f.now + 1500ms);
  auto ready = f.service.take_ready();
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].client == 3);
  CHECK(ready[0].reply.status == 404);
  f.service.expire(f.now + 1h);
  ready = f.service.take_ready();
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].client == 2);
  CHECK_FALSE(f.service.next_deadline());
  f.put("/s/k", "late");
  CHECK_FALSE(f.service.has_ready());
}

TEST_CASE("a wait is cut to the longest allowed") {
  Fixture f(open_to_all(), {.longest_wait = 10s});
  CHECK(f.get("/s/k?wait=99999999999999999999", 1) == 0);
  CHECK(*f.service.next_deadline() == f.now + 10s);
}

TEST_CASE("a client that goes takes its wait along") {
  Fixture f;
  f.get("/s/k?wait=5", 1);
  f.get("/s/k?wait=5", 2);
  f.get("/s?batch&count=3&wait=5", 3);
  f.service.forget(1);
  f.service.forget(3);
  f.service.forget(99);
  CHECK(f.service.parked_count() == 1);
  f.put("/s/k", "v");
  const auto ready = f.service.take_ready();
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].client == 2);
  CHECK_FALSE(f.service.next_deadline());
}

TEST_CASE("waits survive a new round, and are served in it") {
  Fixture f;
  f.service.begin_round({{"global", 1}});
  f.get("/global/1?wait=5", 5);
  f.service.begin_round({{"global", 2}});
  f.put("/global/1", "v");
  CHECK(f.service.take_ready().size() == 1);
}

TEST_CASE("parked waits are limited") {
  Fixture f(open_to_all(), {.parked_waits = 2});
  CHECK(f.get("/s/k?wait=5", 1) == 0);
  CHECK(f.get("/s/k?wait=5", 1) == 503);  // one for each client
  CHECK(f.get("/s/k?wait=5", 2) == 0);
  CHECK(f.get("/s/k?wait=5", 3) == 503);
  f.service.forget(1);
  CHECK(f.get("/s/k?wait=5", 3) == 0);
}

TEST_CASE("a batch reads the whole scope in the order of its keys") {
  Fixture f;
  CHECK(f.get("/s?batch") == 200);
  CHECK(f.body().empty());
  f.put("/s/b", "2");
  f.put("/s/a", std::string("\n1\0", 3));
  CHECK(f.get("/s?batch") == 200);
  CHECK(f.last.content_type == kBatchContentType);
  CHECK(*decode_batch(f.body()) == KvEntries{{"a", std::string("\n1\0", 3)}, {"b", "2"}});
  CHECK(f.get("/s?batch&count=2") == 200);
  CHECK(f.get("/s?batch&count=3") == 404);
  f.put("/s/a", "new");
  f.get("/s?batch");
  CHECK(*decode_batch(f.body()) == KvEntries{{"a", "new"}, {"b", "2"}});
  f.del("/s/b");
  f.get("/s?batch");
  CHECK(*decode_batch(f.body()) == KvEntries{{"a", "new"}});
}

TEST_CASE("a batch waits for a number of keys") {
  Fixture f;
  CHECK(f.get("/s?batch&count=2&wait=5", 1) == 0);
  CHECK(f.get("/s?count=3&batch&wait=5", 2) == 0);
  CHECK(f.get("/s?batch&count=2&wait=5", 3) == 0);
  f.put("/s/a", "1");
  CHECK_FALSE(f.service.has_ready());
  f.put("/s/a", "1");  // the same key does not count twice
  CHECK_FALSE(f.service.has_ready());
  f.put("/s/b", "2");
  const auto ready = f.service.take_ready();
  REQUIRE(ready.size() == 2);
  CHECK(ready[0].client == 1);
  CHECK(ready[1].client == 3);
  CHECK(ready[0].reply.body == ready[1].reply.body);  // one body, shared
  CHECK(f.service.parked_count() == 1);
}

TEST_CASE("a batch writes several keys at once, or none") {
  Fixture f;
  f.get("/s?batch&count=2&wait=5", 1);
  f.get("/s/a?wait=5", 2);
  CHECK(f.put("/s?batch", encode_batch({{"a", "1"}, {"b", ""}})) == 200);
  const auto ready = f.service.take_ready();
  REQUIRE(ready.size() == 2);
  CHECK(f.service.key_count() == 2);
  CHECK(f.put("/s?batch", "") == 200);
  CHECK(f.put("/s?batch", encode_batch({{"c", "1"}, {"", "x"}})) == 400);
  CHECK(f.put("/s?batch", encode_batch({{"c", "1"}}) + "rest") == 400);
  CHECK(f.service.key_count() == 2);
  CHECK(f.put("/new?batch", "x") == 400);
  CHECK(f.del("/s?batch") == 400);
}

TEST_CASE("malformed batches say where") {
  for (const auto* body :
       {"x", "1", "1 ", "1 1", "1 1\n", "1 1\na", " 1\na", "-1 1\nab", "1  1\nab",
        "99999999999 1\nab", "4294967295 4294967295\nab", "1 1\nab1"}) {
    CAPTURE(body);
    auto entries = decode_batch(body);
    REQUIRE_FALSE(entries);
    CHECK(entries.error().message.find("byte ") != std::string::npos);
  }
}

TEST_CASE("memory is bounded") {
  Fixture f(open_to_all(), {.value_bytes = 10, .total_bytes = 30, .keys = 3});
  CHECK(f.put("/s/a", std::string(11, 'x')) == 413);
  CHECK(f.put("/s/a", std::string(10, 'x')) == 200);
  CHECK(f.put("/s/b", std::string(10, 'x')) == 200);
  CHECK(f.service.stored_bytes() == 22);
  CHECK(f.put("/s/c", std::string(8, 'x')) == 507);
  CHECK(f.put("/s/c", std::string(7, 'x')) == 200);
  CHECK(f.put("/s/d", "") == 507);  // too many keys
  CHECK(f.put("/s/a", "") == 200);  // an old key may change
  CHECK(f.put("/s?batch", encode_batch({{"d", ""}})) == 507);
  CHECK(f.service.stored_bytes() == 20);
  f.receiving_bytes = 5;  // another body is on its way
  CHECK(f.put("/s/a", "123456") == 507);
  CHECK(f.put("/s/a", "12345") == 200);
  f.receiving_bytes = 0;
  CHECK_FALSE(f.service.set("s", "d", ""));
  CHECK(f.service.set("s", "a", ""));
}

TEST_CASE("paths are bounded") {
  Fixture f(open_to_all(), {.path_bytes = 10});
  CHECK(f.put("/12345/12345", "x") == 200);
  CHECK(f.put("/12345/123456", "x") == 414);
  CHECK(f.get("/12345/123456?wait=1") == 414);
  CHECK(f.put("/12345?batch", encode_batch({{"123456", ""}})) == 414);
}

TEST_CASE("the token opens, and nothing like it") {
  Fixture f({.token = "secret", .allow = {}});
  CHECK(f.get("/s/k") == 401);
  CHECK(f.last.fields.find("WWW-Authenticate: Bearer") == 0);
  for (const auto* wrong : {"secret", "Bearer", "Bearer ", "Bearer secre", "Bearer secrets",
                            "Bearer Secret", "Basic secret"}) {
    f.authorization = wrong;
    CAPTURE(wrong);
    CHECK(f.put("/s/k", "x") == 401);
  }
  CHECK(f.service.key_count() == 0);
  f.authorization = "Bearer secret";
  CHECK(f.put("/s/k", "x") == 200);
  f.authorization = "bearer  secret";
  CHECK(f.get("/s/k") == 200);
}

TEST_CASE("an address list opens to workers that know no token") {
  Fixture f({.token = "", .allow = {*parse_cidr("10.0.0.0/24"), *parse_cidr("::1")}});
  CHECK(f.get("/s/k") == 404);
  f.peer = address("10.0.1.1");
  CHECK(f.get("/s/k") == 403);
  f.authorization = "Bearer ";
  CHECK(f.get("/s/k") == 403);
  f.peer = address("::1");
  CHECK(f.get("/s/k") == 404);
}

TEST_CASE("token and addresses together: either will do") {
  Fixture f({.token = "secret", .allow = {*parse_cidr("127.0.0.1")}});
  CHECK(f.get("/s/k") == 401);
  f.peer = address("127.0.0.1");
  CHECK(f.get("/s/k") == 404);
}

TEST_CASE("an empty policy admits no client, but answers liveness requests") {
  Fixture f{AccessPolicy{}};
  f.peer = address("127.0.0.1");
  CHECK(f.get("/s/k") == 403);
  CHECK(f.get("/metrics") == 403);
  CHECK(f.get("/healthz") == 200);
  CHECK(f.body() == "ok\n");
  CHECK(f.put("/healthz", "x") == 400);
}

TEST_CASE("a refused writer's body is not asked for") {
  Fixture f{AccessPolicy{}};
  http::RequestHead head;
  head.method = Method::kPut;
  head.target = "/s/k";
  head.content_length = 1000;
  for (const auto* target : {"/s/k", "/healthz", "/"}) {
    head.target = target;
    const auto admission = f.service.admit(head, f.peer, 0);
    REQUIRE(admission.refusal);
    CHECK(admission.body_limit == 0);
  }
}

TEST_CASE("metrics count") {
  Fixture f;
  f.put("/s/k", "abc");
  f.get("/s/k");
  f.get("/s/none");
  f.get("/s/none?wait=1", 4);
  f.service.connections().open = 12;
  CHECK(f.get("/metrics") == 200);
  const std::string text = f.body();
  CAPTURE(text);
  for (const auto* line :
       {"hora_rendezvous_requests_total{method=\"GET\"} 4\n",
        "hora_rendezvous_requests_total{method=\"PUT\"} 1\n",
        "hora_rendezvous_replies_total{status=\"200\"} 2\n",
        "hora_rendezvous_replies_total{status=\"404\"} 1\n", "hora_rendezvous_keys 1\n",
        "hora_rendezvous_stored_bytes 4\n", "hora_rendezvous_parked_waits 1\n",
        "hora_rendezvous_waits_total 1\n", "hora_rendezvous_connections 12\n",
        "# TYPE hora_rendezvous_keys gauge\n"}) {
    CAPTURE(line);
    CHECK(text.find(line) != std::string::npos);
  }
}

TEST_CASE("the launcher's own hand in the store") {
  Fixture f;
  f.get("/s/k?wait=5", 3);
  REQUIRE(f.service.set("s", "k", "v"));
  CHECK(f.service.take_ready().size() == 1);
  CHECK(*f.service.get("s", "k") == "v");
  CHECK(f.service.get("s", "none") == nullptr);
  CHECK(f.service.get("none", "k") == nullptr);
}

TEST_CASE("a watched scope reports waiting and writing clients") {
  Fixture f;
  std::vector<std::string> waits;
  std::vector<std::string> writes;
  KvService::ScopeWatch watch;
  watch.on_wait = [&](std::string_view key) { waits.emplace_back(key); };
  watch.on_write = [&](std::string_view key, const std::string& value) {
    writes.push_back(std::string(key) + "=" + value);
  };
  f.service.watch_scope("ours", watch);
  CHECK(f.get("/ours/a") == 404);  // it does not wait
  CHECK(waits.empty());
  CHECK(f.get("/ours/a?wait=5") == 0);
  CHECK(f.get("/other/a?wait=5", 2) == 0);
  CHECK(waits == std::vector<std::string>{"a"});
  CHECK(f.put("/ours/a", "1") == 200);
  CHECK(writes == std::vector<std::string>{"a=1"});
  REQUIRE(f.service.take_ready().size() == 1);
  CHECK(f.get("/ours/a") == 200);
}

TEST_CASE("a scope that holds: a plain GET waits for ever, and the answer is not kept") {
  Fixture f;
  KvService::ScopeWatch watch;
  watch.holds = true;
  f.service.watch_scope("rank_and_size", watch);
  CHECK(f.get("/rank_and_size/a:0", 7) == 0);
  f.now += std::chrono::hours(24 * 30);
  f.service.expire(f.now);
  CHECK(f.service.parked_count() == 1);
  f.service.begin_round({{"global", 1}});
  f.service.answer("rank_and_size", "a:0", "0,1,0,1,0,1");
  const auto ready = f.service.take_ready();
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].client == 7);
  CHECK(*ready[0].reply.body == "0,1,0,1,0,1");
  CHECK(f.get("/rank_and_size/a:0", 8) == 0);  // the next round's
  f.service.forget(8);
  CHECK(f.service.parked_count() == 0);
  f.service.answer("rank_and_size", "unknown:0", "x");
  CHECK(f.service.take_ready().empty());
}
