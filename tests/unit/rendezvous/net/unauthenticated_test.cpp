// SPDX-License-Identifier: Apache-2.0
// The protocol of these tests: two bytes, "ok" from an admitted client.
#include "rendezvous/net/unauthenticated.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/descriptor_limit.h"

using namespace hora;
using namespace std::chrono_literals;

namespace {

Deadline soon() { return Clock::now() + 10s; }

class Server {
 public:
  struct Connection {
    bool has_spoken() const { return !received.empty(); }
    os::Fd socket;
    std::string received;
  };

  Server()
      : listener(*net::listen_tcp({*parse_ip_address("127.0.0.1"), 0})),
        epoll(::epoll_create1(EPOLL_CLOEXEC)),
        waiting(epoll.get(), 1, [this](Connection& each) { read(each); }) {}

  os::Fd connect(std::string_view words = "") {
    auto socket = net::connect_tcp(*net::local_endpoint(listener.get()), soon());
    REQUIRE(socket);
    say(*socket, words);
    return std::move(*socket);
  }
  // Over the loopback what was sent has arrived when send() returns.
  static void say(const os::Fd& socket, std::string_view words) {
    REQUIRE(net::send_all(socket.get(), words, soon()));
  }
  Status accept(std::size_t awaited, std::size_t others) {
    return waiting.accept_from(listener.get(), awaited, others);
  }
  // Whether the connection was closed here.
  static bool is_closed(const os::Fd& socket) {
    char byte = 0;
    return ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }
  void handle_events() {
    epoll_event events[64];
    const int count = ::epoll_wait(epoll.get(), events, 64, 0);
    for (int i = 0; i < count; ++i) waiting.read(events[i].data.u64);
  }

  os::Fd listener;
  os::Fd epoll;
  net::Unauthenticated<Connection> waiting;
  std::vector<os::Fd> let_in;

 private:
  void read(Connection& each) {
    char words[2];
    const ssize_t count =
        ::recv(each.socket.get(), words, sizeof words - each.received.size(), MSG_DONTWAIT);
    if (count < 0) return;
    each.received.append(words, static_cast<std::size_t>(count));
    if (count != 0 && each.received.size() < sizeof words) return;
    if (each.received == "ok") let_in.push_back(std::move(each.socket));
    each.socket.reset();
  }
};

}  // namespace

TEST_CASE("unauthenticated: a client that authenticates is let in, and one that fails is closed") {
  Server server;
  const os::Fd right = server.connect("ok");
  const os::Fd wrong = server.connect("no");
  const os::Fd slow = server.connect("o");
  REQUIRE(server.accept(1, 4));
  CHECK(server.let_in.size() == 1);
  CHECK(Server::is_closed(wrong));
  CHECK(server.waiting.size() == 1);
  Server::say(slow, "k");
  server.handle_events();
  CHECK(server.let_in.size() == 2);
  CHECK(server.waiting.size() == 0);
}

TEST_CASE("unauthenticated: of too many the oldest silent one is closed") {
  Server server;
  const os::Fd speaks = server.connect("o");
  const os::Fd silent = server.connect();
  const os::Fd youngest = server.connect();
  REQUIRE(server.accept(1, 1));
  CHECK_FALSE(Server::is_closed(speaks));
  CHECK(Server::is_closed(silent));
  CHECK_FALSE(Server::is_closed(youngest));
  CHECK(server.waiting.size() == 2);
}

TEST_CASE("unauthenticated: no flood of silent ones closes who has spoken, read or unread") {
  Server server;
  const os::Fd read = server.connect("o");
  const os::Fd unread = server.connect();
  const os::Fd whole = server.connect();
  REQUIRE(server.accept(3, 2));
  Server::say(unread, "o");
  Server::say(whole, "ok");
  std::vector<os::Fd> flood;
  for (int i = 0; i < 200; ++i) {
    flood.push_back(server.connect());
    REQUIRE(server.accept(3, 2));
  }
  CHECK(server.let_in.size() == 1);
  CHECK_FALSE(Server::is_closed(read));
  CHECK_FALSE(Server::is_closed(unread));
  CHECK(server.waiting.size() == 5);
}

TEST_CASE("unauthenticated: a flood of those who never finish leaves a silent one its time") {
  Server server;
  const os::Fd silent = server.connect();
  std::vector<os::Fd> flood;
  for (int i = 0; i < 50; ++i) flood.push_back(server.connect("o"));
  REQUIRE(server.accept(1, 3));
  CHECK_FALSE(Server::is_closed(silent));
  CHECK(Server::is_closed(flood.front()));
  CHECK_FALSE(Server::is_closed(flood.back()));
  CHECK(server.waiting.size() == 4);
}

TEST_CASE("unauthenticated: a turn ends before all were accepted") {
  Server server;
  std::vector<os::Fd> crowd;
  for (int i = 0; i < 100; ++i) crowd.push_back(server.connect());
  REQUIRE(server.accept(1, 1'000));
  CHECK(server.waiting.size() == 64);
  REQUIRE(server.accept(1, 1'000));
  CHECK(server.waiting.size() == 100);
}

TEST_CASE("unauthenticated: the oldest makes room when no descriptor is left") {
  Server server;
  const os::Fd first = server.connect();
  const os::Fd second = server.connect();
  const rlim_t next = test::next_descriptor();
  std::optional<test::DescriptorLimit> limit(std::in_place, next);
  const Status none = server.accept(1, 4);
  limit.emplace(next + 1);
  const Status one = server.accept(1, 4);
  const Status none_waits = server.accept(1, 4);
  limit.reset();
  CHECK_FALSE(none);
  CHECK(one);
  CHECK(none_waits);
  CHECK(Server::is_closed(first));
  CHECK(server.waiting.size() == 1);
}
