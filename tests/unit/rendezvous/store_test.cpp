// SPDX-License-Identifier: Apache-2.0
// One suite for every Store, and what is particular to each.
#include "rendezvous/store.h"

#include <algorithm>
#include <thread>

#include "rendezvous/contract/store_keys.h"
#include "rendezvous/http_store.h"
#include "tests/support/memory_store.h"
#include "tests/unit/rendezvous/plain_server.h"
#include "tests/unit/rendezvous/server_fixture.h"

using namespace hora;
using namespace hora::rendezvous;
using namespace hora::rendezvous::testing;
using namespace std::chrono_literals;

namespace {

HttpStoreOptions client_of(const Endpoint& where, std::string root = "root") {
  return {.host = format_address(where.address),
          .port = where.port,
          .token = {},
          .root = std::move(root)};
}

// Each gives stores that see the same values; one for each thread that wants one.
struct MemoryFixture {
  static constexpr bool kLists = true;
  std::shared_ptr<Store> client() { return {std::shared_ptr<void>(), &shared}; }
  MemoryStore shared;
};

struct HttpFixture {
  static constexpr bool kLists = true;
  std::shared_ptr<Store> client() { return std::make_shared<HttpStore>(client_of(server.where())); }
  RunningServer server;
};

struct PlainFixture {
  static constexpr bool kLists = false;  // gather() knows only the names 0 to n-1
  std::shared_ptr<Store> client() { return std::make_shared<HttpStore>(client_of(server.where())); }
  PlainServer server;
};

std::string any_bytes() {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  return bytes;
}

template <typename T>
T must(Result<T> result) {
  if (!result) FAIL(result.error().message);
  return std::move(*result);
}

// What ranks do that meet: each sets its value, and waits for those of all.
Result<KvEntries> meet(Store& store, int rank, int size, const std::string& value) {
  HORA_TRY(store.set("mesh/" + rank_key(rank), value, soon()));
  return store.gather("mesh", static_cast<std::size_t>(size), soon());
}

}  // namespace

#define EVERY_STORE MemoryFixture, HttpFixture, PlainFixture

TEMPLATE_TEST_CASE("a store keeps what it is given", "", EVERY_STORE) {
  TestType fixture;
  const auto client = fixture.client();
  Store& store = *client;
  CHECK(must(store.get("k", soon())) == std::nullopt);
  must(store.set("k", any_bytes(), soon()));
  CHECK(must(store.get("k", soon())) == any_bytes());
  CHECK(must(store.wait("k", soon())) == any_bytes());
  must(store.set("k", "", soon()));
  CHECK(must(store.get("k", soon())) == "");
  must(store.remove("k", soon()));
  CHECK(must(store.get("k", soon())) == std::nullopt);
  must(store.remove("k", soon()));
}

TEMPLATE_TEST_CASE("keys may hold any characters and stay apart", "", EVERY_STORE) {
  TestType fixture;
  const auto client = fixture.client();
  Store& store = *client;
  const std::vector<std::string> keys = {"a",     "A",     "a b",     "a?b=c&d", "a%2fb",
                                         "x/a",   "x/y/a", "x%2fy/a", "#",       "\xc3\xbc",
                                         "x/a:b", "..",    "x/..",    "batch",   "healthz"};
  for (const auto& key : keys) must(store.set(key, "value of " + key, soon()));
  for (const auto& key : keys) CHECK(must(store.get(key, soon())) == "value of " + key);
}

TEMPLATE_TEST_CASE("large values", "", EVERY_STORE) {
  TestType fixture;
  const auto client = fixture.client();
  Store& store = *client;
  std::string value;
  while (value.size() < 5'000'000) value += any_bytes();
  must(store.set("big", value, soon()));
  CHECK(must(store.wait("big", soon())) == value);
}

TEMPLATE_TEST_CASE("wait returns when the key comes", "", EVERY_STORE) {
  TestType fixture;
  const auto client = fixture.client();
  Store& store = *client;
  std::thread setter([&] {
    const auto other_client = fixture.client();
    Store& other = *other_client;
    (void)other.set("elsewhere", "x", soon());
    (void)other.set("k", "v", soon());
  });
  CHECK(must(store.wait("k", soon())) == "v");
  setter.join();
}

TEMPLATE_TEST_CASE("wait ends at its deadline and says what for", "", EVERY_STORE) {
  TestType fixture;
  const auto client = fixture.client();
  Store& store = *client;
  must(store.set("other", "x", soon()));
  const Deadline deadline = Clock::now() + 60ms;
  auto value = store.wait("place/missing", deadline);
  CHECK(Clock::now() >= deadline);
  REQUIRE_FALSE(value);
  CHECK(value.error().code == ErrorCode::kTimedOut);
  CHECK(value.error().message.find("missing") != std::string::npos);
  auto entries = store.gather("place", 2, Clock::now() + 60ms);
  REQUIRE_FALSE(entries);
  CHECK(entries.error().code == ErrorCode::kTimedOut);
  CHECK(must(store.get("other", soon())) == "x");  // still of use
}

TEMPLATE_TEST_CASE("a place is gathered once it has enough keys", "", EVERY_STORE) {
  TestType fixture;
  const auto client = fixture.client();
  Store& store = *client;
  must(store.set("place/1", "b", soon()));
  must(store.set("place2/0", "no", soon()));
  must(store.set("place/deep/0", "no", soon()));
  std::thread setter([&] {
    const auto other_client = fixture.client();
    Store& other = *other_client;
    (void)other.set_all("place", {{"0", "a"}, {"2", ""}}, soon());
  });
  const KvEntries entries = must(store.gather("place", 3, soon()));
  setter.join();
  CHECK(entries == KvEntries{{"0", "a"}, {"1", "b"}, {"2", ""}});
  if (TestType::kLists) {
    CHECK(must(store.gather("place", 0, soon())) == entries);
    CHECK(must(store.gather("empty", 0, soon())).empty());
    must(store.set("odd/na?me %", "x", soon()));
    CHECK(must(store.gather("odd", 1, soon())) == KvEntries{{"na?me %", "x"}});
  }
}

TEMPLATE_TEST_CASE("ranks exchange values", "", EVERY_STORE) {
  constexpr int kRanks = 8;
  TestType fixture;
  std::vector<Result<KvEntries>> results(kRanks, make_error(ErrorCode::kFailed, "did not run"));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto client = fixture.client();
      results[static_cast<std::size_t>(rank)] =
          meet(*client, rank, kRanks, "from " + std::to_string(rank));
    });
  }
  for (std::thread& rank : ranks) rank.join();
  KvEntries expected;
  for (int rank = 0; rank < kRanks; ++rank) {
    expected.emplace_back(rank_key(rank), "from " + std::to_string(rank));
  }
  for (const auto& result : results) CHECK(must(result) == expected);
}

TEST_CASE("a meeting of n costs 2n requests, on one connection each") {
  constexpr int kRanks = 64;
  RunningServer server;
  std::vector<std::uint64_t> requests(kRanks);
  std::vector<std::uint64_t> connections(kRanks);
  std::atomic<int> failed = 0;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      HttpStore store(client_of(server.where()));
      if (!meet(store, rank, kRanks, std::string(136, 'a'))) ++failed;
      requests[static_cast<std::size_t>(rank)] = store.requests_sent();
      connections[static_cast<std::size_t>(rank)] = store.connections_made();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  CHECK(failed == 0);
  CHECK(std::all_of(requests.begin(), requests.end(), [](auto count) { return count == 2; }));
  CHECK(std::all_of(connections.begin(), connections.end(), [](auto n) { return n == 1; }));
}

TEST_CASE("ranks meet though the server has too few connections for them") {
  constexpr int kRanks = 48;
  KvServerOptions options;
  options.max_connections = 8;
  RunningServer server(options);
  std::atomic<int> failed = 0;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      HttpStore store(client_of(server.where()));
      if (!meet(store, rank, kRanks, "x")) ++failed;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  CHECK(failed == 0);
}

TEST_CASE("a wait is one request, also as the first one") {
  RunningServer server;
  HttpStore store(client_of(server.where()));
  Result<std::string> value = make_error(ErrorCode::kFailed, "did not run");
  std::thread waiter([&] { value = store.wait("k", soon()); });
  server.await([](KvService& service) { return service.parked_count() == 1; }, "the wait");
  server.with_service([](KvService& service) { (void)service.set("root", "k", "v"); });
  waiter.join();
  CHECK(must(value) == "v");
  CHECK(store.requests_sent() == 1);
}

TEST_CASE("a wait without a deadline is parked, one whose deadline is long past is over") {
  RunningServer server;
  HttpStore store(client_of(server.where()));
  must(store.set("k0", "", soon()));
  auto late = store.wait("k", Deadline::min());
  REQUIRE_FALSE(late);
  CHECK(late.error().code == ErrorCode::kTimedOut);
  Result<std::string> value = make_error(ErrorCode::kFailed, "did not run");
  std::thread waiter([&] { value = store.wait("k", Deadline::max()); });
  server.await([](KvService& service) { return service.parked_count() == 1; }, "the wait");
  server.with_service([](KvService& service) { (void)service.set("root", "k", "v"); });
  waiter.join();
  CHECK(must(value) == "v");
}

TEST_CASE("keys are where Horovod's workers look for them") {
  RunningServer server;
  HttpStore store(client_of(server.where(), ""));
  must(store.set("global/0", "x", soon()));
  must(store.set("local_node-1.example/rank_0", "y", soon()));
  server.with_service([](KvService& service) {
    CHECK(service.get("global", "0") != nullptr);
    CHECK(service.get("local_node-1.example", "rank_0") != nullptr);
  });
  for (const auto* key : {"noplace", "place/", "/name", ""}) {
    CAPTURE(key);
    CHECK(store.set(key, "x", soon()).error().code == ErrorCode::kUsage);
  }
}

TEST_CASE("the token opens the store, without it the error says why not") {
  RunningServer server({}, {.token = "secret", .allow = {}});
  HttpStoreOptions options = client_of(server.where());
  options.token = "secret";
  HttpStore insider(options);
  must(insider.set("k", "v", soon()));
  options.token = "guess";
  HttpStore outsider(options);
  for (const Error& error :
       {outsider.set("k", "x", soon()).error(), outsider.get("k", soon()).error(),
        outsider.wait("k", soon()).error(), outsider.gather("p", 1, soon()).error(),
        outsider.remove("k", soon()).error()}) {
    CHECK(error.code == ErrorCode::kDenied);
    CHECK(error.message.find("token") != std::string::npos);
  }
  CHECK(must(insider.get("k", soon())) == "v");
}

TEST_CASE("a full store is an error with a reason") {
  RunningServer server({}, loopback_only(), {.value_bytes = 1'000'000, .total_bytes = 1'500'000});
  HttpStore store(client_of(server.where()));
  const Status long_value = store.set("k", std::string(3'000'000, 'x'), soon());
  REQUIRE_FALSE(long_value);
  CHECK(long_value.error().message.find("too long") != std::string::npos);
  must(store.set("a", std::string(900'000, 'x'), soon()));
  const Status full = store.set("b", std::string(900'000, 'x'), soon());
  REQUIRE_FALSE(full);
  CHECK(full.error().message.find("full") != std::string::npos);
  must(store.set("b", "small", soon()));
}

TEST_CASE("a server that parks no more is asked again and again") {
  RunningServer server({}, loopback_only(), {.parked_waits = 0});
  HttpStore store(client_of(server.where()));
  must(store.set("other", "", soon()));
  Result<std::string> value = make_error(ErrorCode::kFailed, "did not run");
  std::thread waiter([&] { value = store.wait("k", soon()); });
  server.await([](KvService& service) { return service.connections().received_bytes > 300; },
               "a few questions");
  server.with_service([](KvService& service) { (void)service.set("root", "k", "v"); });
  waiter.join();
  CHECK(must(value) == "v");
}

TEST_CASE("a connection that the server closed while it was idle is opened again") {
  KvServerOptions options;
  options.idle_timeout = 300ms;
  options.sweep_interval = 10ms;
  RunningServer server(options);
  HttpStore store(client_of(server.where()));
  must(store.set("k", "v", soon()));
  server.await([](KvService& service) { return service.connections().open == 0; }, "the close");
  CHECK(must(store.get("k", soon())) == "v");
  CHECK(store.connections_made() == 2);
  CHECK(store.requests_sent() == 2);
}

TEST_CASE("a server that comes late is waited for, one that never comes is named") {
  Endpoint where;
  {
    RunningServer gone;
    where = gone.where();
  }
  HttpStoreOptions options = client_of(where);
  options.timeout = 100ms;
  HttpStore store(options);
  const Status refused = store.set("k", "v", soon());
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == ErrorCode::kUnavailable);
  CHECK(refused.error().message.find(format_endpoint(where)) != std::string::npos);

  options.timeout = 20s;
  HttpStore state(options);
  std::atomic<bool> done = false;
  std::thread setter([&] { done = state.set("k", "v", soon()).has_value(); });
  std::this_thread::sleep_for(50ms);
  KvServerOptions again;
  again.addresses = {where};
  RunningServer server(again);
  setter.join();
  CHECK(done);
  server.with_service([](KvService& service) { CHECK(service.get("root", "k") != nullptr); });
}

TEST_CASE("a server that is stopped does not stop the client for ever") {
  // It accepts by its backlog, and never answers.
  auto listener = net::listen_tcp({*parse_ip_address("127.0.0.1"), 0});
  REQUIRE(listener);
  HttpStore store(client_of(*net::local_endpoint(listener->get())));
  auto value = store.wait("k", Clock::now() + 80ms);
  REQUIRE_FALSE(value);
  CHECK(value.error().code == ErrorCode::kTimedOut);
}

TEST_CASE("names of hosts work, and IPv6") {
  RunningServer server;
  HttpStoreOptions options = client_of(server.where());
  options.host = "localhost";
  HttpStore store(options);
  must(store.set("k", "v", soon()));
  if (!net::listen_tcp({*parse_ip_address("::1"), 0})) return;  // a host without IPv6
  KvServerOptions v6;
  v6.addresses = {{*parse_ip_address("::1"), 0}};
  RunningServer server6(v6);
  for (const auto* host : {"::1", "[::1]"}) {
    options = client_of(server6.where());
    options.host = host;
    HttpStore store6(options);
    must(store6.set("k", "v", soon()));
  }
}

TEST_CASE("a plain server is recognised by its first answer") {
  PlainServer server;
  HttpStore store(client_of(server.where()));
  const auto gathered = store.gather("p", 1, Clock::now() + 30ms);
  REQUIRE_FALSE(gathered);
  CHECK(gathered.error().code == ErrorCode::kTimedOut);
  must(store.set_all("p", {{"0", "a"}, {"1", "b"}}, soon()));
  CHECK(must(store.gather("p", 2, soon())) == KvEntries{{"0", "a"}, {"1", "b"}});
}
