// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/net/acceptor.h"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/descriptor_limit.h"

using namespace hora;
using namespace std::chrono_literals;

namespace {

struct Server {
  explicit Server(std::size_t awaited)
      : loop(*os::EventLoop::create()),
        acceptor(*loop, *net::listen_tcp({*parse_ip_address("127.0.0.1"), 0}),
                 [this, awaited](net::Accepted each) {
                   accepted.push_back(std::move(each));
                   if (accepted.size() == awaited) loop->stop();
                 }) {
    REQUIRE(acceptor.start());
    // So a test that fails ends.
    loop->call_after(10s, [this] { loop->stop(); });
  }
  os::Fd connect() const {
    auto socket =
        net::connect_tcp({*parse_ip_address("127.0.0.1"), acceptor.port()}, Clock::now() + 10s);
    REQUIRE(socket);
    return std::move(*socket);
  }

  std::unique_ptr<os::EventLoop> loop;
  std::vector<net::Accepted> accepted;
  net::Acceptor acceptor;
};

}  // namespace

TEST_CASE("acceptor: hands over who connects, and says from where") {
  Server server(2);
  const os::Fd one = server.connect();
  const os::Fd two = server.connect();
  REQUIRE(server.loop->run());
  REQUIRE(server.accepted.size() == 2);
  CHECK(server.accepted[0].peer == *net::local_endpoint(one.get()));
  CHECK(server.accepted[1].peer == *net::local_endpoint(two.get()));
}

TEST_CASE("acceptor: a crowd does not keep a turn from its end") {
  Server server(40);
  std::vector<os::Fd> crowd;
  for (int i = 0; i < 40; ++i) crowd.push_back(server.connect());
  std::vector<std::size_t> by_turn;
  const std::function<void()> note = [&] {
    by_turn.push_back(server.accepted.size());
    if (server.accepted.size() < 40) server.loop->call_after(0s, note);
  };
  server.loop->call_after(0s, note);
  REQUIRE(server.loop->run());
  CHECK(server.accepted.size() == 40);
  for (std::size_t i = 1; i < by_turn.size(); ++i) CHECK(by_turn[i] - by_turn[i - 1] <= 16);
}

TEST_CASE("acceptor: without a free descriptor it rests, and goes on when there is one") {
  Server server(1);
  const os::Fd client = server.connect();
  std::optional<test::DescriptorLimit> none(std::in_place, test::next_descriptor());
  server.loop->call_after(20ms, [&] { none.reset(); });
  REQUIRE(server.loop->run());
  CHECK(server.accepted.size() == 1);
}
