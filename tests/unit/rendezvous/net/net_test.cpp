// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <optional>
#include <thread>

#include "rendezvous/net/addresses.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/net/tcp_state.h"
#include "tests/support/catch.h"
#include "tests/support/descriptor_limit.h"

using namespace hora;
using namespace hora::net;
using namespace std::chrono_literals;

namespace {

Endpoint loopback(std::uint16_t port = 0, bool v6 = false) {
  return {*parse_ip_address(v6 ? "::1" : "127.0.0.1"), port};
}

struct Listener {
  os::Fd fd;
  Endpoint where;
};

Listener listen_on(const Endpoint& endpoint) {
  auto fd = listen_tcp(endpoint);
  if (!fd) FAIL(fd.error().message);
  auto where = local_endpoint(fd->get());
  REQUIRE(where);
  return {std::move(*fd), *where};
}

Deadline soon() { return Clock::now() + 10s; }

bool has_ipv6() {
  auto fd = listen_tcp(loopback(0, true));
  return fd.has_value();
}

Accepted accept_one(const Listener& listener) {
  REQUIRE(wait_readable(listener.fd.get(), soon(), "a connection"));
  auto accepted = accept_tcp(listener.fd.get());
  REQUIRE(accepted);
  REQUIRE(accepted->has_value());
  return std::move(**accepted);
}

int int_option(int fd, int level, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  REQUIRE(::getsockopt(fd, level, name, &value, &size) == 0);
  return value;
}

}  // namespace

TEST_CASE("without a descriptor to spare, accepting fails only while a client waits") {
  const Listener listener = listen_on(loopback());
  const os::Fd client = connect_tcp(listener.where, soon()).value();
  std::optional<test::DescriptorLimit> none(std::in_place, test::next_descriptor());
  const auto waiting = accept_tcp(listener.fd.get());
  none.reset();
  REQUIRE(accept_tcp(listener.fd.get()).value());
  none.emplace(test::next_descriptor());
  const auto unused = accept_tcp(listener.fd.get());
  none.reset();
  REQUIRE_FALSE(waiting);
  CHECK(waiting.error().code == ErrorCode::kUnavailable);
  REQUIRE(unused);
  CHECK_FALSE(*unused);
}

TEST_CASE("bytes travel over a connection") {
  const Listener listener = listen_on(loopback());
  CHECK(listener.where.port != 0);
  auto unused = accept_tcp(listener.fd.get());
  REQUIRE(unused);
  CHECK_FALSE(unused->has_value());

  auto client = connect_tcp(listener.where, soon());
  REQUIRE(client);
  const Accepted server = accept_one(listener);
  CHECK(server.peer == *local_endpoint(client->get()));

  for (const int fd : {client->get(), server.fd.get()}) {
    CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK((::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    CHECK(int_option(fd, IPPROTO_TCP, TCP_NODELAY) == 1);
  }

  const std::string sent(3'000'000, 'x');  // more than the buffers of both ends hold
  Status status = make_error(ErrorCode::kFailed, "did not run");
  std::thread sender([&] {
    status = send_all(client->get(), sent, soon());
    client->reset();
  });
  std::string received;
  std::array<char, 65536> buffer;
  for (;;) {
    auto got = receive_some(server.fd.get(), buffer.data(), buffer.size(), soon());
    REQUIRE(got);
    if (*got == 0) break;
    received.append(buffer.data(), *got);
  }
  sender.join();
  CHECK(status);
  CHECK(received == sent);
}

TEST_CASE("the kernel knows how far the other end of a connection is, and of nothing else") {
  const Listener listener = listen_on(loopback());
  auto client = connect_tcp(listener.where, soon());
  REQUIRE(client);
  const auto away = least_round_trip(client->get());
  REQUIRE(away);
  CHECK(away->count() >= 0);
  CHECK_FALSE(least_round_trip(-1));
  const os::Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  CHECK_FALSE(least_round_trip(null.get()));
}

TEST_CASE("a refused connection says so") {
  Endpoint closed;
  {
    const Listener listener = listen_on(loopback());
    closed = listener.where;
  }
  auto client = connect_tcp(closed, soon());
  REQUIRE_FALSE(client);
  CHECK(client.error().code == ErrorCode::kUnavailable);
  CHECK(client.error().message.find(format_endpoint(closed)) != std::string::npos);
}

TEST_CASE("a silent peer ends at the deadline") {
  const Listener listener = listen_on(loopback());
  auto client = connect_tcp(listener.where, soon());
  REQUIRE(client);
  std::array<char, 16> buffer;
  auto got = receive_some(client->get(), buffer.data(), buffer.size(), Clock::now() + 20ms);
  REQUIRE_FALSE(got);
  CHECK(got.error().code == ErrorCode::kTimedOut);
  auto waited = wait_readable(client->get(), Clock::now(), "the answer");
  REQUIRE_FALSE(waited);
  CHECK(waited.error().message == "the answer: timed out");
}

TEST_CASE("a port in use is an error that names it") {
  const Listener listener = listen_on(loopback());
  auto second = listen_tcp(listener.where);
  REQUIRE_FALSE(second);
  CHECK(second.error().message.find(format_endpoint(listener.where)) != std::string::npos);
}

TEST_CASE("a dual-stack listener shows an IPv4 peer as IPv4") {
  if (!has_ipv6()) return;  // a host without IPv6
  const Listener listener = listen_on({*parse_ip_address("::"), 0});
  auto v4 = connect_tcp(loopback(listener.where.port), soon());
  REQUIRE(v4);
  CHECK(format_address(accept_one(listener).peer.address) == "127.0.0.1");
  auto v6 = connect_tcp(loopback(listener.where.port, true), soon());
  REQUIRE(v6);
  CHECK(format_address(accept_one(listener).peer.address) == "::1");
}

TEST_CASE("sending to a peer that has gone is an error, not a signal") {
  const Listener listener = listen_on(loopback());
  auto client = connect_tcp(listener.where, soon());
  REQUIRE(client);
  { const Accepted gone = accept_one(listener); }
  Status status = Ok{};
  for (int i = 0; i < 100 && status; ++i) status = send_all(client->get(), "x", soon());
  CHECK_FALSE(status);
}

TEST_CASE("names resolve, unknown ones do not") {
  auto numeric = resolve_host("[::1]", 80);
  REQUIRE(numeric);
  CHECK(format_endpoint(numeric->front()) == "[::1]:80");
  auto local = resolve_host("localhost", 80);
  REQUIRE(local);
  CHECK(std::all_of(local->begin(), local->end(),
                    [](const Endpoint& e) { return e.address.is_loopback() && e.port == 80; }));
  auto unknown = resolve_host("no such host", 80);
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().message.find("'no such host'") != std::string::npos);
}

TEST_CASE("connect_host tries every address of a name") {
  const Listener listener = listen_on(loopback());  // IPv4 only; localhost may be ::1 first
  CHECK(connect_host("localhost", listener.where.port, soon()));
}

TEST_CASE("the interfaces include loopback") {
  auto interfaces = list_interfaces();
  REQUIRE(interfaces);
  const auto found = std::find_if(
      interfaces->begin(), interfaces->end(),
      [](const Interface& interface) { return format_address(interface.address) == "127.0.0.1"; });
  REQUIRE(found != interfaces->end());
  CHECK(found->loopback);
  CHECK(found->up);
  CHECK(found->prefix_length == 8);
  CHECK(found->mtu >= 1500);
  CHECK_FALSE(found->virtual_bridge);
}

TEST_CASE("bridges are known by driver or name") {
  CHECK(is_bridge_name("docker0", ""));
  CHECK(is_bridge_name("br-5f1c2", ""));
  CHECK(is_bridge_name("anything", "bridge"));
  CHECK_FALSE(is_bridge_name("eth0", "veth"));
  CHECK_FALSE(is_bridge_name("bridgeport0", "mlx5_core"));
}
