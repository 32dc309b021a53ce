// SPDX-License-Identifier: Apache-2.0
// One connection, event by event.
#include "rendezvous/kv_connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>

#include "tests/support/catch.h"

using namespace hora;
using namespace hora::rendezvous;

namespace {

constexpr std::string_view kGet = "GET /s/k HTTP/1.1\r\n\r\n";
constexpr std::string_view kAlive = "GET /healthz HTTP/1.1\r\n\r\n";
constexpr std::string_view kToken = "GET /s/k HTTP/1.1\r\nAuthorization: Bearer token\r\n\r\n";

// Of a server that knows 127.0.0.1 and any client with the token.
class Connected {
 public:
  explicit Connected(std::string_view peer) {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
    peer_ = os::Fd(ends[0]);
    context_.scratch.resize(128 * 1024);
    connection = std::make_unique<KvConnection>(std::make_unique<net::Stream>(os::Fd(ends[1])),
                                                *parse_ip_address(peer), 1, context_);
  }

  void say(std::string_view bytes) {
    REQUIRE(::send(peer_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
            static_cast<ssize_t>(bytes.size()));
  }
  void say(std::string_view bytes, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += bytes;
    say(all);
  }
  KvConnection::Fate event(std::uint32_t events) { return connection->on_events(events); }
  // Replies that have come since.
  int replies() {
    std::string all;
    std::array<char, 4096> bytes;
    ssize_t got = 0;
    while ((got = ::recv(peer_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT)) > 0) {
      all.append(bytes.data(), static_cast<std::size_t>(got));
    }
    int count = 0;
    for (auto at = all.find("HTTP/1.1 "); at != all.npos; at = all.find("HTTP/1.1 ", at + 1)) {
      ++count;
    }
    last_is_last = all.find("Connection: close") != all.npos;
    return count;
  }

  bool last_is_last = false;  // it was announced that the connection is closed after them

 private:
  KvService service_{{.token = "token", .allow = {*parse_cidr("127.0.0.1")}}};
  KvServerOptions options_;
  KvConnectionContext context_{service_, options_};
  os::Fd peer_;

 public:
  std::unique_ptr<KvConnection> connection;  // ends before what it uses
};

constexpr auto kKeep = KvConnection::Fate::kKeep;
constexpr auto kClose = KvConnection::Fate::kClose;

}  // namespace

TEST_CASE("a turn is some of the requests in line, and the rest come in later ones") {
  constexpr int kRequests = 1000;
  constexpr int kMostInATurn = 16;
  Connected client("127.0.0.1");
  client.say(kGet, kRequests);
  CHECK(client.connection->wanted_events() == EPOLLIN);
  CHECK(client.event(EPOLLIN) == kKeep);
  int answered = client.replies();
  CHECK(answered == kMostInATurn);
  while (answered < kRequests) {
    // All of it has arrived: there would be no notice, but there is always room to answer.
    REQUIRE(client.connection->wanted_events() == EPOLLOUT);
    CHECK_FALSE(client.connection->idle());
    REQUIRE(client.event(EPOLLOUT) == kKeep);
    const int more = client.replies();
    REQUIRE(more > 0);
    REQUIRE(more <= kMostInATurn);
    answered += more;
  }
  CHECK(answered == kRequests);
  CHECK(client.connection->wanted_events() == EPOLLIN);
  CHECK(client.connection->idle());
}

TEST_CASE("requests without the token count, too, on a connection that has shown it") {
  Connected client("10.0.0.1");
  client.say(std::string(kToken) + std::string(kToken));
  CHECK(client.event(EPOLLIN) == kKeep);
  CHECK(client.replies() == 2);
  client.say(kGet, 100);
  CHECK(client.event(EPOLLIN) == kKeep);
  CHECK(client.replies() == 16);
}

TEST_CASE("an unauthenticated client gets one answer to its pipelined requests") {
  Connected client("10.0.0.1");
  CHECK(client.connection->unauthenticated());
  SECTION("a question that is answered") { client.say(kAlive, 2); }
  SECTION("one that is not") { client.say(kGet, 2); }
  SECTION("one that is followed by something else") {
    client.say(std::string(kAlive) + std::string(kToken));
  }
  CHECK(client.event(EPOLLIN) == kKeep);  // what follows is thrown away
  CHECK(client.replies() == 1);
  CHECK(client.last_is_last);
  CHECK(client.connection->wanted_events() == EPOLLIN);
  client.say(kAlive, 10);
  CHECK(client.event(EPOLLIN) == kKeep);
  CHECK(client.replies() == 0);
}

TEST_CASE("an unauthenticated client that is refused gets its answer") {
  Connected client("10.0.0.1");
  client.say(kGet);
  CHECK(client.event(EPOLLIN) == kClose);
  CHECK(client.replies() == 1);
  CHECK(client.last_is_last);
}

TEST_CASE("an unauthenticated client may repeat the liveness request, and then authenticate") {
  Connected client("10.0.0.1");
  for (int i = 0; i < 100; ++i) {
    client.say(kAlive);
    REQUIRE(client.event(EPOLLIN) == kKeep);
    REQUIRE(client.replies() == 1);
    REQUIRE_FALSE(client.last_is_last);
    REQUIRE(client.connection->unauthenticated());
  }
  client.say(kToken, 2);
  CHECK(client.event(EPOLLIN) == kKeep);
  CHECK(client.replies() == 2);
  CHECK_FALSE(client.connection->unauthenticated());
}

TEST_CASE("an unauthenticated client that reads no answers is not read from") {
  Connected client("10.0.0.1");
  // Until the socket's buffers are full.
  for (int i = 0; (client.connection->wanted_events() & EPOLLOUT) == 0; ++i) {
    REQUIRE(i < 1'000'000);
    client.say(kAlive);
    REQUIRE(client.event(EPOLLIN) == kKeep);
  }
  CHECK(client.connection->wanted_events() == EPOLLOUT);
  client.say(kAlive);
  CHECK(client.event(EPOLLOUT) == kKeep);
  CHECK(client.connection->wanted_events() == EPOLLOUT);
  CHECK(client.replies() > 0);
  CHECK(client.event(EPOLLOUT) == kKeep);
  CHECK(client.connection->wanted_events() == EPOLLIN);
}

TEST_CASE("a client from an address on the list counts as authenticated") {
  CHECK_FALSE(Connected("127.0.0.1").connection->unauthenticated());
  CHECK(Connected("127.0.0.2").connection->unauthenticated());
}
