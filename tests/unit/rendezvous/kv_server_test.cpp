// SPDX-License-Identifier: Apache-2.0
// The server over real sockets.
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>

#include "rendezvous/os/limits.h"
#include "tests/support/descriptor_limit.h"
#include "tests/unit/rendezvous/server_fixture.h"

using namespace hora;
using namespace hora::rendezvous;
using namespace hora::rendezvous::testing;
using namespace std::chrono_literals;

namespace {

std::string request(std::string_view method, std::string_view target, std::string_view body = {}) {
  return std::string(method) + " " + std::string(target) +
         " HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         std::string(body);
}

std::pair<int, std::string> ask(const RunningServer& server, std::string_view bytes) {
  RawClient client(server.where());
  client.send(bytes);
  return client.read_reply();
}

using Reply = std::pair<int, std::string>;

}  // namespace

TEST_CASE("a connection carries many requests") {
  RunningServer server;
  RawClient client(server.where());
  for (int i = 0; i < 100; ++i) {
    const std::string value = "value " + std::to_string(i);
    client.send(request("PUT", "/s/k", value));
    CHECK(client.read_reply() == Reply{200, ""});
    client.send(request("GET", "/s/k"));
    CHECK(client.read_reply() == Reply{200, value});
  }
  server.with_service([](KvService& service) {
    CHECK(service.connections().accepted == 1);
    CHECK(service.connections().open == 1);
  });
}

TEST_CASE("the head of a reply has the fields of Horovod's server, and no others") {
  RunningServer server;
  RawClient client(server.where());
  client.send(request("PUT", "/s/k", "abc") + request("GET", "/s/k"));
  client.read_reply();
  client.read_reply();
  const std::string head = client.last_head;
  CHECK(head.find("HTTP/1.1 200 OK\r\nServer: hora/") == 0);
  CHECK(head.find("\r\nDate: ") != std::string::npos);
  CHECK(head.find("\r\nContent-Length: 3\r\n") != std::string::npos);
  CHECK(std::count(head.begin(), head.end(), '\n') == 5);
}

TEST_CASE("HTTP/1.0 closes after the reply, unless asked to go on") {
  RunningServer server;
  ask(server, request("PUT", "/s/k", "abc"));
  RawClient closing(server.where());
  closing.send("GET /s/k HTTP/1.0\r\n\r\n");
  CHECK(closing.read_all().substr(9, 3) == "200");
  RawClient keeping(server.where());
  keeping.send("GET /s/k HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  CHECK(keeping.read_reply() == Reply{200, "abc"});
  CHECK(keeping.last_head.find("Connection: keep-alive\r\n") != std::string::npos);
  keeping.send("GET /s/none HTTP/1.1\r\nConnection: close\r\n\r\n");
  const std::string last = keeping.read_all();
  CHECK(last.find("HTTP/1.1 404 ") == 0);
  CHECK(last.find("Connection: close\r\n") != std::string::npos);
}

TEST_CASE("pipelined requests are answered in order, a waiting one holds the rest") {
  RunningServer server;
  RawClient client(server.where());
  client.send(request("PUT", "/s/a", "1") + request("GET", "/s/a") +
              request("GET", "/s/b?wait=20") + request("GET", "/s/a") + request("HEAD", "/s/a") +
              request("GET", "/s/b"));
  CHECK(client.read_reply() == Reply{200, ""});
  CHECK(client.read_reply() == Reply{200, "1"});
  server.await([](KvService& service) { return service.parked_count() == 1; }, "the wait");
  client.send(request("DELETE", "/s/a"));  // after the wait, in the kernel
  CHECK(ask(server, request("PUT", "/s/b", "2")) == Reply{200, ""});
  CHECK(client.read_reply() == Reply{200, "2"});
  CHECK(client.read_reply() == Reply{200, "1"});
  CHECK(client.read_until("\r\n\r\n").find("Content-Length: 1\r\n") != std::string::npos);
  CHECK(client.read_reply() == Reply{200, "2"});
  CHECK(client.read_reply() == Reply{200, ""});
}

TEST_CASE("a wait ends without its key") {
  RunningServer server;
  RawClient client(server.where());
  const auto start = Clock::now();
  client.send(request("GET", "/s/k?wait=0.05"));
  CHECK(client.read_reply() == Reply{404, ""});
  CHECK(Clock::now() - start >= 50ms);
}

TEST_CASE("a client that goes while it waits leaves nothing behind") {
  RunningServer server;
  for (const bool with_request_behind : {false, true}) {
    RawClient client(server.where());
    client.send(request("GET", "/s/k?wait=300"));
    server.await([](KvService& service) { return service.parked_count() == 1; }, "the wait");
    if (with_request_behind) client.send(request("GET", "/s/k"));
    client.close();
    server.await([](KvService& service) { return service.parked_count() == 0; }, "its end");
    server.await([](KvService& service) { return service.connections().open == 0; }, "the close");
  }
}

TEST_CASE("the launcher's own set wakes a waiter") {
  RunningServer server;
  RawClient client(server.where());
  client.send(request("GET", "/s/k?wait=20"));
  server.await([](KvService& service) { return service.parked_count() == 1; }, "the wait");
  server.with_service([](KvService& service) { CHECK(service.set("s", "k", "v")); });
  CHECK(client.read_reply() == Reply{200, "v"});
}

TEST_CASE("large values come and go whole, and slow readers are not in the way") {
  RunningServer server;
  std::string value(20'000'000, '\0');
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 7 + i / 251);
  RawClient slow(server.where());
  slow.send(request("PUT", "/s/big", value));
  CHECK(slow.read_reply() == Reply{200, ""});
  // Ten replies in line, none of them read yet; others are served meanwhile.
  for (int i = 0; i < 10; ++i) slow.send(request("GET", "/s/big"));
  CHECK(ask(server, request("GET", "/s/none")) == Reply{404, ""});
  for (int i = 0; i < 10; ++i) {
    const auto [status, body] = slow.read_reply();
    CHECK(status == 200);
    CHECK(body == value);
  }
}

TEST_CASE("many small replies in line, then read") {
  RunningServer server;
  ask(server, request("PUT", "/s/k", std::string(3000, 'x')));
  RawClient client(server.where());
  constexpr int kRequests = 5000;  // 15 MB of replies: more than the server queues
  std::string all;
  for (int i = 0; i < kRequests; ++i) all += request("GET", "/s/k");
  std::thread sender([&] { client.send(all); });
  for (int i = 0; i < kRequests; ++i) {
    const auto [status, body] = client.read_reply();
    REQUIRE(status == 200);
    REQUIRE(body.size() == 3000);
  }
  sender.join();
}

TEST_CASE("chunked bodies and Expect") {
  RunningServer server;
  CHECK(
      ask(server,
          "PUT /s/k HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
          .first == 200);
  CHECK(ask(server, request("GET", "/s/k")) == Reply{200, "abcde"});
  RawClient client(server.where());
  client.send("PUT /s/k HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  CHECK(client.read_until("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("xy");
  CHECK(client.read_reply() == Reply{200, ""});
}

TEST_CASE("a refused body is neither read nor does it hide the refusal") {
  RunningServer server({}, loopback_only(), {.value_bytes = 1000});
  RawClient client(server.where());
  const std::string body(2'000'000, 'x');
  std::thread sender([&] { client.try_send(request("PUT", "/s/k", body)); });
  const std::string reply = client.read_all();
  sender.join();
  CHECK(reply.find("HTTP/1.1 413 ") == 0);
  CHECK(reply.find("Connection: close\r\n") != std::string::npos);
  // One that does not say how long it is going to be.
  RawClient chunked(server.where());
  chunked.try_send("PUT /s/k HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" +
                   std::string(2'000, 'x') + "\r\n0\r\n\r\n");
  CHECK(chunked.read_all().find("HTTP/1.1 413 ") == 0);
  CHECK(ask(server, request("GET", "/s/k")) == Reply{404, ""});
}

TEST_CASE("bodies on their way count as memory") {
  RunningServer server({}, loopback_only(), {.value_bytes = 1000, .total_bytes = 1500});
  RawClient first(server.where());
  first.send("PUT /s/a HTTP/1.1\r\nContent-Length: 1000\r\n\r\n");
  first.send(std::string(999, 'x'));
  server.await([](KvService& service) { return service.connections().received_bytes > 1000; },
               "the first body");
  CHECK(ask(server, request("PUT", "/s/b", std::string(600, 'y'))).first == 507);
  RawClient chunked(server.where());
  chunked.send("PUT /s/b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n" +
               std::string(700, 'z'));
  const int status = chunked.read_reply().first;
  CHECK((status == 507 || status == 413));
  first.send("x");
  CHECK(first.read_reply().first == 200);
  CHECK(ask(server, request("PUT", "/s/b", std::string(400, 'y'))).first == 200);
}

TEST_CASE("a client that does not send HTTP gets an error, and is disconnected") {
  RunningServer server;
  for (const std::string_view garbage :
       {"\x16\x03\x01\x02\x00\x01\xfc\x03\x03 a TLS hello\r\n\r\n", "hello\r\n\r\n", "GET\r\n\r\n",
        "GET /s/k HTTP/1.1\r\nbroken\r\n\r\n", "\r\n\r\n\r\nnonsense\r\n\r\n"}) {
    RawClient client(server.where());
    client.send(garbage);
    CHECK(client.read_all().substr(0, 13) == "HTTP/1.1 400 ");
  }
  RawClient long_head(server.where());
  long_head.try_send("GET /s/k HTTP/1.1\r\nX: " + std::string(100'000, 'x'));
  CHECK(long_head.read_all().substr(0, 13) == "HTTP/1.1 431 ");
  RawClient long_target(server.where());
  long_target.try_send("GET /" + std::string(100'000, 'x'));
  CHECK(long_target.read_all().substr(0, 13) == "HTTP/1.1 414 ");
  CHECK(ask(server, request("GET", "/s/k")).first == 404);
}

TEST_CASE("4 GB announced are 4 GB refused") {
  RunningServer server;
  for (const auto* length : {"4294967296", "18446744073709551615", "18446744073709551616"}) {
    RawClient client(server.where());
    client.send("PUT /s/k HTTP/1.1\r\nContent-Length: " + std::string(length) + "\r\n\r\n");
    const std::string reply = client.read_all();
    CHECK((reply.substr(9, 3) == "413" || reply.substr(9, 3) == "400"));
  }
}

TEST_CASE("random bytes never stop the server") {
  RunningServer server;
  std::uint32_t seed = 12345;
  const auto random = [&] { return seed = seed * 1664525u + 1013904223u, seed >> 16; };
  const std::string valid = request("PUT", "/s/k", "value") + request("GET", "/s/k?wait=0");
  for (int round = 0; round < 300; ++round) {
    std::string bytes = valid;
    const std::uint32_t changes = 1 + random() % 8;
    for (std::uint32_t i = 0; i < changes; ++i) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    bytes.resize(random() % (bytes.size() + 1));
    RawClient client(server.where());
    client.try_send(bytes);
    client.close();
  }
  CHECK(ask(server, request("PUT", "/s/k", "x")) == Reply{200, ""});
}

TEST_CASE("the token is asked for before the body") {
  RunningServer server({}, {.token = "secret", .allow = {}});
  RawClient client(server.where());
  client.send(request("GET", "/s/k"));
  CHECK(client.read_reply().first == 401);
  CHECK(client.last_head.find("WWW-Authenticate: Bearer") != std::string::npos);
  CHECK(client.last_head.find("Connection: close") != std::string::npos);
  CHECK(client.read_all().empty());
  // Of one that has shown it, a request without a body is refused, and the connection goes on.
  RawClient known(server.where());
  known.send("GET /s/k HTTP/1.1\r\nAuthorization: Bearer secret\r\n\r\n");
  CHECK(known.read_reply().first == 404);
  known.send(request("GET", "/s/k"));
  CHECK(known.read_reply().first == 401);
  known.send("PUT /s/k HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n");
  CHECK(known.read_reply().first == 401);
  CHECK(known.last_head.find("Connection: close") != std::string::npos);
  CHECK(ask(server, request("GET", "/healthz")) == Reply{200, "ok\n"});
}

TEST_CASE("addresses that are not on the list are refused") {
  RunningServer server({}, {.token = {}, .allow = {*parse_cidr("10.0.0.0/8")}});
  CHECK(ask(server, request("GET", "/s/k")).first == 403);
  CHECK(ask(server, request("PUT", "/s/k", "x")).first == 403);
  CHECK(ask(server, request("GET", "/healthz")).first == 200);
}

TEST_CASE("several addresses share a free port") {
  KvServerOptions options;
  for (const auto* text : {"127.0.0.1", "127.0.0.2", "127.0.0.3"}) {
    options.addresses.push_back({*parse_ip_address(text), 0});
  }
  RunningServer server(options);
  REQUIRE(server.addresses().size() == 3);
  for (const Endpoint& where : server.addresses()) {
    CHECK(where.port == server.where().port);
    RawClient client(where);
    client.send(request("GET", "/healthz"));
    CHECK(client.read_reply().first == 200);
  }
}

TEST_CASE("a server that cannot listen says where") {
  RunningServer server;
  auto loop = os::EventLoop::create();
  REQUIRE(loop);
  KvService service(loopback_only());
  KvServerOptions only_there;
  only_there.addresses = {server.where()};
  auto second = KvServer::start(**loop, service, only_there);
  REQUIRE_FALSE(second);
  CHECK(second.error().message.find(format_endpoint(server.where())) != std::string::npos);
  CHECK_FALSE(KvServer::start(**loop, service, {}));
}

// --- slow and many -------------------------------------------------------------------------------

TEST_CASE("slow requests end with 408, others do not notice") {
  KvServerOptions options;
  options.request_timeout = 200ms;
  options.sweep_interval = 20ms;
  options.least_rate_bytes_per_second = 1u << 30;
  RunningServer server(options);
  constexpr int kSlow = 1000;
  os::raise_file_limit();
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < kSlow; ++i) {
    slow.push_back(std::make_unique<RawClient>(server.where()));
    // Half in the head, half in the body.
    slow.back()->send(i % 2 == 0 ? "GET /s/k HTT"
                                 : "PUT /s/k HTTP/1.1\r\nContent-Length: 9\r\n\r\nx");
  }
  RawClient normal(server.where());
  for (int i = 0; i < 100; ++i) {
    normal.send(request("GET", "/s/k"));
    CHECK(normal.read_reply().first == 404);
  }
  for (auto& client : slow) CHECK(client->read_all().find("HTTP/1.1 408 ") == 0);
  slow.clear();
  server.with_service([&](KvService& service) {
    CHECK(service.connections().timed_out >= kSlow);
    CHECK(service.stored_bytes() == 0);
  });
}

TEST_CASE("a client that drips bytes cannot hold a request open") {
  KvServerOptions options;
  options.request_timeout = 150ms;
  options.sweep_interval = 20ms;
  RunningServer server(options);
  RawClient client(server.where());
  std::atomic<bool> over = false;
  std::thread dripping([&] {
    client.try_send("GET /s/k HTTP/1.1\r\n");
    while (!over) {
      client.try_send("X: y\r\n");
      std::this_thread::sleep_for(10ms);
    }
  });
  const std::string reply = client.read_until("\r\n\r\n");
  over = true;
  dripping.join();
  CHECK(reply.find("HTTP/1.1 408 ") == 0);
}

TEST_CASE("idle connections are closed in the end, waiting ones are not") {
  KvServerOptions options;
  options.idle_timeout = 500ms;
  options.sweep_interval = 20ms;
  RunningServer server(options);
  RawClient waiting(server.where());
  waiting.send(request("GET", "/s/k?wait=20"));
  RawClient idle(server.where());
  idle.send(request("GET", "/s/k"));
  CHECK(idle.read_reply().first == 404);
  RawClient silent(server.where());
  CHECK(silent.read_all().empty());
  CHECK(idle.read_all().empty());
  ask(server, request("PUT", "/s/k", "v"));
  CHECK(waiting.read_reply() == Reply{200, "v"});
}

TEST_CASE("a peer that takes nothing is cut off") {
  KvServerOptions options;
  options.write_timeout = 100ms;
  options.sweep_interval = 20ms;
  RunningServer server(options);
  ask(server, request("PUT", "/s/big", std::string(30'000'000, 'x')));
  RawClient client(server.where());
  client.send(request("GET", "/s/big"));
  server.await([](KvService& service) { return service.connections().timed_out == 1; }, "the cut");
}

TEST_CASE("4,096 clients at once, none refused") {
  constexpr std::size_t kClients = 4096;
  if (os::raise_file_limit() < 2 * kClients + 200) {
    WARN("the limit of open files is too low for this test");
    return;
  }
  RunningServer server;
  // All connections are begun before any is looked after.
  std::vector<os::Fd> sockets;
  sockaddr_storage address;
  const unsigned length = net::to_sockaddr(server.where(), address);
  for (std::size_t i = 0; i < kClients; ++i) {
    os::Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    REQUIRE(fd.valid());
    (void)::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length);
    sockets.push_back(std::move(fd));
  }
  const std::string put = request("PUT", "/s/k", "v");
  std::size_t answered = 0;
  for (const os::Fd& fd : sockets) {
    REQUIRE(net::wait_writable(fd.get(), soon(), "a connection"));
    const Status sent = net::send_all(fd.get(), put, soon());
    if (!sent) FAIL(sent.error().message);
  }
  for (const os::Fd& fd : sockets) {
    std::array<char, 512> buffer;
    auto got = net::receive_some(fd.get(), buffer.data(), buffer.size(), soon());
    if (!got) FAIL(got.error().message);
    if (std::string_view(buffer.data(), *got).substr(0, 12) == "HTTP/1.1 200") ++answered;
  }
  CHECK(answered == kClients);
}

TEST_CASE("4,096 clients wait for one key") {
  constexpr std::size_t kClients = 4096;
  if (os::raise_file_limit() < 2 * kClients + 200) {
    WARN("the limit of open files is too low for this test");
    return;
  }
  RunningServer server;
  std::vector<std::unique_ptr<RawClient>> clients;
  for (std::size_t i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.where()));
    clients.back()->send(request("GET", "/s/k?wait=60"));
  }
  server.await([](KvService& service) { return service.parked_count() == kClients; }, "all waits");
  CHECK(ask(server, request("PUT", "/s/k", "go")) == Reply{200, ""});
  for (auto& client : clients) REQUIRE(client->read_reply() == Reply{200, "go"});
}

TEST_CASE("at the limit of connections new clients wait, and idle ones are closed") {
  KvServerOptions options;
  options.max_connections = 8;
  RunningServer server(options);
  std::vector<std::unique_ptr<RawClient>> idle;
  for (int i = 0; i < 8; ++i) {
    idle.push_back(std::make_unique<RawClient>(server.where()));
    idle.back()->send(request("GET", "/healthz"));
    CHECK(idle.back()->read_reply().first == 200);
  }
  // It waits in the backlog until one of the eight has idled long enough to be closed.
  CHECK(ask(server, request("GET", "/s/k")).first == 404);
  server.with_service([](KvService& service) { CHECK(service.connections().evicted >= 1); });
}

TEST_CASE("at the limit of connections those that drip a head make room") {
  KvServerOptions options;
  options.max_connections = 8;
  options.request_timeout = 300s;
  RunningServer server(options);
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 8; ++i) {
    slow.push_back(std::make_unique<RawClient>(server.where()));
    slow.back()->send("GET /s/k HTTP/1.1\r\nX: ");
  }
  server.await([](KvService& service) { return service.connections().open == 8; }, "all eight");
  CHECK(ask(server, request("GET", "/s/k")).first == 404);
  server.with_service([](KvService& service) { CHECK(service.connections().evicted >= 1); });
}

TEST_CASE("those who wait make room for the one who brings the key") {
  KvServerOptions options;
  options.max_connections = 8;
  RunningServer server(options);
  std::vector<std::unique_ptr<RawClient>> waiting;
  for (int i = 0; i < 8; ++i) {
    waiting.push_back(std::make_unique<RawClient>(server.where()));
    waiting.back()->send(request("GET", "/s/k?wait=60"));
  }
  server.await([](KvService& service) { return service.parked_count() == 8; }, "the waits");
  CHECK(ask(server, request("PUT", "/s/k", "v")) == Reply{200, ""});
  int served = 0;
  for (auto& client : waiting) {
    const Reply reply = client->read_reply();
    CHECK((reply == Reply{200, "v"} || reply == Reply{503, ""}));
    if (reply.first == 200) ++served;
  }
  CHECK(served == 7);
}

TEST_CASE("unauthenticated clients evict each other, and take at most half of the connections") {
  constexpr std::size_t kCrowd = 40;
  KvServerOptions options;
  options.max_connections = 16;
  options.request_timeout = options.write_timeout = options.drain_timeout = 300s;
  RunningServer server(options, {.token = "secret", .allow = {}});
  std::string said;
  SECTION("they say nothing") {}
  SECTION("they say half of a head") { said = "GET /s/k HTTP/1.1\r\nX: "; }
  SECTION("they ask, and stay") { said = request("GET", "/healthz"); }
  SECTION("they are refused, and stay") {
    said = "PUT /s/k HTTP/1.1\r\nContent-Length: 100\r\n\r\n";
  }
  const std::string with_token = "GET /s/k HTTP/1.1\r\nAuthorization: Bearer secret\r\n\r\n";
  std::vector<std::unique_ptr<RawClient>> known;
  std::vector<std::unique_ptr<RawClient>> crowd;
  for (std::size_t i = 0; i < 8; ++i) {
    known.push_back(std::make_unique<RawClient>(server.where()));
    known.back()->send(with_token);
    CHECK(known.back()->read_reply().first == 404);
  }
  for (std::size_t i = 0; i < kCrowd; ++i) {
    crowd.push_back(std::make_unique<RawClient>(server.where()));
    crowd.back()->try_send(said);
  }
  server.await([&](KvService& service) { return service.connections().evicted >= kCrowd - 8; },
               "those who have to go");
  server.with_service([&](KvService& service) {
    CHECK(service.connections().open == 16);
    CHECK(service.connections().evicted == kCrowd - 8);
    CHECK(service.connections().timed_out == 0);
  });
  for (auto& client : known) {
    client->send(with_token);
    CHECK(client->read_reply().first == 404);
  }
}

TEST_CASE("those who send many requests in line keep neither the owner nor each other waiting") {
  constexpr std::size_t kClients = 200;
  constexpr std::size_t kRequests = 2'000;
  // Connections that write and that are new, and requests of each.
  constexpr std::size_t kMostInATurn = (64 + 64) * 16;
  os::raise_file_limit();
  RunningServer server;
  RawClient first(server.where());
  first.send(request("GET", "/s/k"));
  first.read_reply();
  const std::size_t reply_bytes = first.last_head.size();
  std::uint64_t sent = 0;
  std::uint64_t most = 0;
  std::atomic<bool> over = false;
  std::function<void()> each_turn;
  server.with_service([&](KvService& service) {
    sent = service.connections().sent_bytes;
    each_turn = [&] {
      const std::uint64_t now = service.connections().sent_bytes;
      most = std::max(most, now - std::exchange(sent, now));
      if (!over) server.loop().post(each_turn);
    };
    server.loop().post(each_turn);
  });
  std::string line;
  for (std::size_t i = 0; i < kRequests; ++i) line += request("GET", "/s/k");
  std::vector<std::unique_ptr<RawClient>> clients;
  for (std::size_t i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.where()));
    clients.back()->send(line);
  }
  for (auto& client : clients) {
    CHECK(client->read(kRequests * reply_bytes).size() == kRequests * reply_bytes);
  }
  over = true;
  server.with_service([&](KvService&) { CHECK(most <= kMostInATurn * reply_bytes); });
  server.with_service([](KvService&) {});  // after the last requested turn
}

TEST_CASE("without a descriptor left, new clients wait until there is one") {
#if defined(__SANITIZE_ADDRESS__)
  return;  // UBSan needs a descriptor to look at an object, and takes it for damaged without one
#endif
  RunningServer server;
  std::vector<std::unique_ptr<RawClient>> busy;
  for (int i = 0; i < 4; ++i) {
    busy.push_back(std::make_unique<RawClient>(server.where()));
    busy.back()->send("PUT /s/k HTTP/1.1\r\nContent-Length: 10\r\n\r\n");
  }
  server.await([](KvService& service) { return service.connections().accepted == 4; }, "all four");
  os::Fd later(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  std::optional<test::DescriptorLimit> few(std::in_place, 3);
  sockaddr_storage address;
  const unsigned length = net::to_sockaddr(server.where(), address);
  (void)::connect(later.get(), reinterpret_cast<sockaddr*>(&address), length);
  const Status connected = net::wait_writable(later.get(), soon(), "the backlog");
  // The server fails to accept and must rest, not spin: its thread's time shows it.
  std::uint64_t accepted = 0;
  server.with_service([&](KvService& service) { accepted = service.connections().accepted; });
  const Status sent = net::send_all(later.get(), request("GET", "/s/k"), soon());
  std::this_thread::sleep_for(300ms);
  timespec cpu{};
  server.with_service([&](KvService&) { ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu); });
  timespec cpu_later{};
  std::this_thread::sleep_for(300ms);
  server.with_service([&](KvService& service) {
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu_later);
    CHECK(service.connections().accepted <= accepted + 1);
  });
  few.reset();
  REQUIRE(connected);
  REQUIRE(sent);
  const auto used_ms =
      (cpu_later.tv_sec - cpu.tv_sec) * 1000 + (cpu_later.tv_nsec - cpu.tv_nsec) / 1'000'000;
  CHECK(used_ms < 150);
  std::array<char, 512> buffer;
  auto got = net::receive_some(later.get(), buffer.data(), buffer.size(), soon());
  REQUIRE(got);
  CHECK(std::string_view(buffer.data(), *got).substr(0, 12) == "HTTP/1.1 404");
}
