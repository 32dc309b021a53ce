// SPDX-License-Identifier: Apache-2.0
// TLS between a store and its server: which peers are accepted, which are not, and what others can
// do.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <random>
#include <thread>

#include "rendezvous/base/encoding.h"
#include "rendezvous/http_store.h"
#include "rendezvous/tls/tls_stream.h"
#include "tests/unit/rendezvous/server_fixture.h"

using namespace hora;
using namespace hora::rendezvous;
using namespace hora::rendezvous::testing;
using namespace std::chrono_literals;

namespace {

tls::ServerSide server_side() {
  auto side = tls::make_server_side("hora test");
  if (!side) FAIL(side.error().message);
  return std::move(*side);
}

TEST_CASE("TLS: one seed is one certificate, for every process that has it") {
  const std::string seed(32, 's');
  const auto fingerprint = [](const std::string& name, const std::string& seed) {
    auto side = tls::make_server_side(name, seed);
    if (!side) FAIL(side.error().message);
    return side->fingerprint;
  };
  CHECK(fingerprint("a", seed) == fingerprint("a", seed));
  // Kept by later releases: the nodes of a job may have several.
  CHECK(fingerprint("a", seed) ==
        "4877c383c2aa3088d1c1273fcfc4f453c4ee92b14f38e5fa77695bde41f159e9");
  CHECK(fingerprint("a", seed) != fingerprint("a", std::string(32, 't')));
  CHECK(fingerprint("a", {}) != fingerprint("a", {}));
  CHECK_FALSE(tls::make_server_side("a", "short"));
}

KvServerOptions with(net::AcceptStream make_stream, KvServerOptions options = {}) {
  options.make_stream = std::move(make_stream);
  return options;
}

HttpStore store_of(const Endpoint& where, const std::string& fingerprint) {
  return HttpStore({.host = format_address(where.address),
                    .port = where.port,
                    .token = {},
                    .make_stream = tls::pinned(fingerprint),
                    .root = "root",
                    // Where a handshake has little time it may need several.
                    .timeout = 15s});
}

// What a client says first, taken from a client.
std::string client_hello() {
  auto listener = net::listen_tcp({*parse_ip_address("127.0.0.1"), 0});
  REQUIRE(listener);
  const auto where = net::local_endpoint(listener->get());
  REQUIRE(where);
  std::thread client([&] {
    auto fd = net::connect_tcp(*where, soon());
    if (fd) static_cast<void>(tls::pinned(std::string(64, '0'))(std::move(*fd), soon()));
  });
  REQUIRE(net::wait_readable(listener->get(), soon(), "a client"));
  auto accepted = net::accept_tcp(listener->get());
  REQUIRE(accepted);
  REQUIRE(*accepted);
  std::string hello;
  std::size_t length = 5;
  while (hello.size() < length) {
    std::array<char, 4096> buffer;
    const auto got = net::receive_some((*accepted)->fd.get(), buffer.data(), buffer.size(), soon());
    REQUIRE(got);
    REQUIRE(*got > 0);
    hello.append(buffer.data(), *got);
    if (hello.size() >= 5) {
      length =
          5 + static_cast<unsigned char>(hello[3]) * 256U + static_cast<unsigned char>(hello[4]);
    }
  }
  (*accepted)->fd.reset();
  client.join();
  return hello;
}

bool works(const RunningServer& server, const std::string& fingerprint) {
  HttpStore store = store_of(server.where(), fingerprint);
  const auto set = store.set("a", "value", soon());
  if (!set) UNSCOPED_INFO(set.error().message);
  const auto got = set ? store.get("a", soon()) : set.error();
  return got && *got == "value";
}

// Closed by the server; a reset counts, too.
bool closed(RawClient& client) {
  std::array<char, 4096> buffer;
  for (;;) {
    const auto got = net::receive_some(client.fd(), buffer.data(), buffer.size(), soon());
    if (!got) return got.error().code != ErrorCode::kTimedOut;
    if (*got == 0) return true;
  }
}

}  // namespace

TEST_CASE("a store and its server talk under TLS") {
  const tls::ServerSide side = server_side();
  RunningServer server(with(side.accept));
  HttpStore store = store_of(server.where(), side.fingerprint);
  CHECK(side.fingerprint.size() == 64);

  SECTION("small and large values, on one connection") {
    std::string large(3'000'000, 'x');
    std::mt19937 random(7);
    for (char& c : large) c = static_cast<char>(random());
    REQUIRE(store.set("small", "1", soon()));
    REQUIRE(store.set("large", large, soon()));
    const auto small = store.get("small", soon());
    const auto got = store.get("large", soon());
    REQUIRE(small);
    REQUIRE(got);
    CHECK(*small == "1");
    CHECK(*got == large);
    CHECK(store.connections_made() == 1);
  }
  SECTION("one who waits is woken by another") {
    std::thread other([&] {
      server.await([](KvService& service) { return service.parked_count() == 1; },
                   "the one who waits");
      HttpStore second = store_of(server.where(), side.fingerprint);
      CHECK(second.set("late", "here", soon()));
    });
    const auto got = store.wait("late", soon());
    other.join();
    REQUIRE(got);
    CHECK(*got == "here");
  }
  SECTION("many at a time") {
    std::vector<std::thread> clients;
    std::atomic<int> served = 0;
    for (int i = 0; i < 16; ++i) {
      clients.emplace_back([&, i] {
        HttpStore own = store_of(server.where(), side.fingerprint);
        const std::string key = "place/" + std::to_string(i);
        if (own.set(key, std::string(20'000, 'a'), soon()) && own.gather("place", 16, soon()))
          ++served;
      });
    }
    for (std::thread& client : clients) client.join();
    CHECK(served == 16);
  }
}

TEST_CASE("each job has a certificate of its own") {
  CHECK(server_side().fingerprint != server_side().fingerprint);
}

TEST_CASE("another's certificate is refused, and the error names both") {
  const tls::ServerSide ours = server_side();
  const tls::ServerSide theirs = server_side();
  RunningServer impostor(with(theirs.accept));
  HttpStore store = store_of(impostor.where(), ours.fingerprint);
  const auto set = store.set("a", "secret", soon());
  REQUIRE_FALSE(set);
  INFO(set.error().message);
  CHECK(set.error().code == ErrorCode::kDenied);
  CHECK(set.error().message.find(ours.fingerprint) != std::string::npos);
  CHECK(set.error().message.find(theirs.fingerprint) != std::string::npos);
  CHECK(set.error().message.find("not the job's rendezvous") != std::string::npos);
  CHECK(set.error().message.find(format_endpoint(impostor.where())) != std::string::npos);
  impostor.with_service([](KvService& service) { CHECK(service.key_count() == 0); });
}

TEST_CASE("who speaks HTTP to it gets no answer") {
  const tls::ServerSide side = server_side();
  RunningServer server(with(side.accept));
  RawClient plain(server.where());
  plain.try_send("GET /root/a HTTP/1.1\r\nHost: a\r\n\r\n");
  std::array<char, 4096> buffer;
  const auto got = net::receive_some(plain.fd(), buffer.data(), buffer.size(), soon());
  CHECK((!got || *got == 0));
  CHECK(works(server, side.fingerprint));
}

TEST_CASE("a server without TLS is not talked to") {
  RunningServer server;
  HttpStore store = store_of(server.where(), std::string(64, 'a'));
  const auto set = store.set("a", "secret", soon());
  REQUIRE_FALSE(set);
  INFO(set.error().message);
  CHECK(set.error().message.find("TLS: the other side does not speak TLS") != std::string::npos);
  server.with_service([](KvService& service) { CHECK(service.key_count() == 0); });
}

TEST_CASE("an invalid fingerprint is an error, not a connection without TLS") {
  RunningServer server;
  for (const std::string text : {"a", "zz", "0011"}) {
    const auto set = store_of(server.where(), text).set("a", "secret", soon());
    REQUIRE_FALSE(set);
    CHECK(set.error().message.find("HORA_RENDEZVOUS_TLS") != std::string::npos);
  }
  CHECK_FALSE(tls::pinned(""));
}

TEST_CASE("who dawdles with a handshake has as long as with a request") {
  const tls::ServerSide side = server_side();
  KvServerOptions options;
  options.request_timeout = 300ms;
  options.sweep_interval = 20ms;
  RunningServer server(with(side.accept, options));
  const std::string hello = client_hello();
  SECTION("a byte, and nothing more") {
    RawClient client(server.where());
    client.send(hello.substr(0, 1));
    CHECK(closed(client));
  }
  SECTION("byte after byte, for ever") {
    RawClient client(server.where());
    std::size_t sent = 0;
    while (sent + 1 < hello.size() && net::send_all(client.fd(), hello.substr(sent, 1), soon())) {
      ++sent;
      std::this_thread::sleep_for(10ms);
    }
    CHECK(sent + 1 < hello.size());
  }
  SECTION("the first message, and no answer to the server's") {
    RawClient client(server.where());
    client.send(hello);
    CHECK(client.read(1) == "\x16");
    CHECK(closed(client));
  }
  server.await([](KvService& service) { return service.connections().timed_out == 1; },
               "the one who was too slow");
  CHECK(works(server, side.fingerprint));
}

TEST_CASE("unauthenticated clients that begin handshakes are evicted for ranks") {
  const tls::ServerSide side = server_side();
  KvServerOptions options;
  options.max_connections = 16;
  options.request_timeout = 60s;
  RunningServer server(with(side.accept, options));
  const std::string hello = client_hello();
  std::vector<std::unique_ptr<RawClient>> pending;
  for (int i = 0; i < 16; ++i) {
    pending.push_back(std::make_unique<RawClient>(server.where()));
    pending.back()->try_send(i % 2 == 0 ? hello : hello.substr(0, 40));
  }
  CHECK(works(server, side.fingerprint));
}

// A connection from this address of the loopback; none if that failed.
os::Fd connect_from(const char* address, const Endpoint& where) {
  os::Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in from{};
  from.sin_family = AF_INET;
  sockaddr_in to = from;
  to.sin_port = htons(where.port);
  const int later = 1;  // the port, when it is known that only the pair must be free
  const bool connected =
      ::inet_pton(AF_INET, address, &from.sin_addr) == 1 &&
      ::inet_pton(AF_INET, format_address(where.address).c_str(), &to.sin_addr) == 1 &&
      ::setsockopt(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &later, sizeof later) == 0 &&
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&from), sizeof from) == 0 &&
      ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  return connected ? std::move(fd) : os::Fd();
}

// Whatever has come is thrown away.
bool still_open(int fd) {
  std::array<char, 4096> buffer;
  ssize_t got = 0;
  while ((got = ::recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT)) > 0) continue;
  return got < 0 && errno == EAGAIN;
}

// This many were closed for others.
void await_evicted(RunningServer& server, std::uint64_t count) {
  server.await([count](KvService& service) { return service.connections().evicted >= count; },
               "those who are sent away");
  server.with_service([count](KvService& service) {
    CHECK(service.connections().evicted == count);
    CHECK(service.connections().timed_out == 0);
  });
}

TEST_CASE("sessions of unauthenticated clients are limited, and those of others are not") {
  const tls::ServerSide side = server_side();
  KvServerOptions options;
  options.max_unauthenticated = 8;
  options.request_timeout = 60s;
  RunningServer server(with(side.accept, options), {.token = "token", .allow = {}});
  const auto rank = [&] {
    return HttpStore({.host = "127.0.0.1",
                      .port = server.where().port,
                      .token = "token",
                      .make_stream = tls::pinned(side.fingerprint),
                      .root = "root",
                      .timeout = 20s});
  };

  SECTION("half a handshake: the oldest go") {
    const std::string hello = client_hello();
    std::vector<std::unique_ptr<RawClient>> pending;
    for (int i = 0; i < 20; ++i) {
      pending.push_back(std::make_unique<RawClient>(server.where()));
      pending.back()->send(hello);
      CHECK(pending.back()->read(1) == "\x16");
    }
    await_evicted(server, 12);
    for (int i = 0; i < 12; ++i) CHECK(closed(*pending[i]));
    CHECK(rank().set("a", "value", soon()));
  }
  SECTION("a whole one, and no token shown") {
    std::vector<std::unique_ptr<net::Stream>> pending;
    for (int i = 0; i < 20; ++i) {
      auto fd = net::connect_tcp(server.where(), soon());
      REQUIRE(fd);
      auto stream = tls::pinned(side.fingerprint)(std::move(*fd), soon());
      REQUIRE(stream);
      if (i % 2 == 0) {
        REQUIRE(net::send_all(**stream, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", soon()));
        std::array<char, net::Stream::kLeastRoom> buffer;
        REQUIRE(net::receive_some(**stream, buffer.data(), buffer.size(), soon()));
      }
      pending.push_back(std::move(*stream));
    }
    await_evicted(server, 12);
    CHECK(rank().set("a", "value", soon()));
  }
  SECTION("who has shown the token is none, and stays") {
    std::vector<std::unique_ptr<HttpStore>> ranks;
    for (int i = 0; i < 12; ++i) {
      ranks.emplace_back(new HttpStore(rank()));
      REQUIRE(ranks.back()->set("a", "value", soon()));
    }
    for (const auto& store : ranks) {
      REQUIRE(store->get("a", soon()));
      CHECK(store->connections_made() == 1);
    }
    await_evicted(server, 0);
  }
  SECTION("a crowd from one address does not evict clients of another") {
    const std::string hello = client_hello();
    RawClient slow(server.where());
    slow.send(hello);
    CHECK(slow.read(1) == "\x16");
    std::vector<os::Fd> crowd;
    for (int i = 0; i < 40; ++i) {
      crowd.push_back(connect_from("127.0.0.2", server.where()));
      REQUIRE(net::send_all(crowd.back().get(), hello, soon()));
    }
    await_evicted(server, 33);
    CHECK(still_open(slow.fd()));
    server.with_service([](KvService& service) { CHECK(service.connections().open == 8); });
    CHECK(rank().set("a", "value", soon()));
  }
  SECTION("ranks meet while a crowd comes from elsewhere") {
    constexpr int kRanks = 4;  // more of the crowd are there than this when there are too many
    const std::string hello = client_hello();
    std::atomic<bool> over = false;
    std::thread crowd([&] {
      std::vector<os::Fd> half_done(64);
      for (std::size_t i = 0; !over; i = (i + 1) % half_done.size()) {
        half_done[i] = connect_from("127.0.0.2", server.where());
        static_cast<void>(net::send_all(half_done[i].get(), hello, soon()));
        std::array<char, 4096> answer;
        static_cast<void>(
            net::receive_some(half_done[i].get(), answer.data(), answer.size(), soon()));
      }
    });
    server.await([](KvService& service) { return service.connections().evicted > 0; }, "a crowd");
    std::atomic<int> served = 0;
    std::vector<std::thread> ranks;
    for (int i = 0; i < kRanks; ++i) {
      ranks.emplace_back([&, i] {
        HttpStore own = rank();
        const Deadline deadline = Clock::now() + 60s;  // the crowd takes its time
        const auto set = own.set("place/" + std::to_string(i), "value", deadline);
        if (set && own.gather("place", kRanks, deadline) && own.connections_made() == 1) ++served;
      });
    }
    for (std::thread& thread : ranks) thread.join();
    over = true;
    crowd.join();
    CHECK(served == kRanks);
  }
}

TEST_CASE("malformed first messages end their connection, and nothing else") {
  const tls::ServerSide side = server_side();
  RunningServer server(with(side.accept));
  const std::string hello = client_hello();
  SECTION("one that is longer than any") {
    RawClient client(server.where());
    client.try_send(std::string("\x16\x03\x01\xff\xff", 5) + std::string(70'000, 'a'));
    CHECK(closed(client));
  }
  SECTION("one that says it will be, which is not waited for") {
    auto options = with(side.accept);
    options.request_timeout = std::chrono::minutes(10);
    RunningServer state(std::move(options));
    RawClient client(state.where());
    client.send(std::string("\x16\x03\x01\x10\x00", 5));
    CHECK(closed(client));
  }
  SECTION("one with wrong bytes") {
    std::mt19937 random(42);
    for (int round = 0; round < 200; ++round) {
      std::string wrong = hello;
      for (int i = 0; i < 4; ++i)
        wrong[5 + random() % (wrong.size() - 5)] = static_cast<char>(random());
      RawClient client(server.where());
      client.try_send(wrong);
      if (round % 2 == 0) client.close();  // else it may still be whole, and is answered
    }
  }
  SECTION("garbage where the client's answer should be") {
    RawClient client(server.where());
    client.send(hello);
    CHECK(client.read(1) == "\x16");
    client.try_send(std::string("\x17\x03\x03\x00\x20", 5) + std::string(32, 'z'));
    CHECK(closed(client));
  }
  CHECK(works(server, side.fingerprint));
}
