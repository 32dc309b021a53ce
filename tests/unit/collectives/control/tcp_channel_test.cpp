// SPDX-License-Identifier: Apache-2.0
#include "collectives/control/tcp_channel.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <map>
#include <vector>

#include "rendezvous/net/socket.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::collectives;

namespace {

constexpr std::chrono::seconds kTimeout{60};

Deadline soon() { return Clock::now() + kTimeout; }

// Two ends of a TCP connection.
std::pair<os::Fd, os::Fd> connection() {
  auto listener = net::listen_tcp({*parse_ip_address("127.0.0.1"), 0});
  REQUIRE(listener);
  auto near = net::connect_tcp(*net::local_endpoint(listener->get()), soon());
  REQUIRE(near);
  REQUIRE(net::wait_readable(listener->get(), soon(), "the connection"));
  auto far = net::accept_tcp(listener->get());
  REQUIRE((far && *far));
  return {std::move(*near), std::move((*far)->fd)};
}

// A centre with two peers, 1 and 2.
struct Star {
  Star() {
    for (int rank : {1, 2}) {
      auto [near, far] = connection();
      const Status here = centre.add_peer(rank, std::move(near), {});
      const Status there = peers[rank].add_peer(0, std::move(far), {});
      REQUIRE((here && there));
    }
  }
  std::vector<std::string> received_by(int rank, std::size_t count) {
    std::vector<std::string> received;
    while (received.size() < count) {
      const auto messages = peers[rank].poll(soon());
      REQUIRE(!messages.empty());
      for (const Incoming& each : messages) received.push_back(each.bytes);
    }
    return received;
  }
  TcpChannel centre;
  std::map<int, TcpChannel> peers;
};

}  // namespace

TEST_CASE("a message to all keeps its order, also while a peer does not read") {
  Star star;
  const std::string large(16 << 20, 'x');  // more than the kernel takes
  star.centre.send(1, "first");
  star.centre.send_to_all({1, 2}, large);
  star.centre.send(2, "behind");
  star.centre.send_to_all({2, 1}, "second");  // while the large one waits
  star.centre.send(1, "last");
  CHECK_FALSE(star.centre.flush(-1, Clock::now()));  // it has to wait
  // Rank 0 writes on whenever it polls. Both read: a connection whose far end does not take what
  // waits for it ends after a while.
  std::map<int, std::vector<std::string>> received;
  while (received[1].size() < 4 || received[2].size() < 3) {
    (void)star.centre.poll(kNoWait);
    for (auto& [rank, peer] : star.peers) {
      for (Incoming& each : peer.poll(Clock::now() + std::chrono::milliseconds(1))) {
        REQUIRE_FALSE(each.gone);
        received[rank].push_back(std::move(each.bytes));
      }
    }
  }
  CHECK(received[1] == std::vector<std::string>{"first", large, "second", "last"});
  CHECK(received[2] == std::vector<std::string>{large, "behind", "second"});
  CHECK(star.centre.flush(-1, soon()));
}

TEST_CASE("a message to all reaches the others when one of them is gone") {
  Star star;
  star.peers.erase(1);
  const auto end = star.centre.poll(soon());
  REQUIRE(end.size() == 1);
  CHECK((end[0].gone && end[0].rank == 1));
  star.centre.send_to_all({1, 2, 7}, "to all");  // there is no rank 7
  star.centre.send_to_all({1, 2}, "again");
  CHECK(star.received_by(2, 2) == std::vector<std::string>{"to all", "again"});
  CHECK(star.centre.flush(-1, soon()));
}

TEST_CASE("what came with the handshake is delivered once, and by its sender's number") {
  auto [near, far] = connection();
  TcpChannel channel;
  FrameBuffer early;
  std::string frame;
  append_frame(frame, "early");
  early.append(frame);
  const Status added = channel.add_peer(12'345, std::move(near), std::move(early));
  REQUIRE(added);
  auto messages = channel.poll(soon());
  REQUIRE(messages.size() == 1);
  CHECK((messages[0].rank == 12'345 && messages[0].bytes == "early"));
  CHECK(channel.poll(kNoWait).empty());
}

namespace {

// Whose first packet has been lost: the listener's queue was full.
os::Fd connection_with_a_loss(const os::Fd& listener) {
  const auto where = *net::local_endpoint(listener.get());
  std::vector<os::Fd> all;
  for (int i = 0; i < 3; ++i) {
    auto one = net::begin_connect_tcp(where, soon());
    REQUIRE(one);
    all.push_back(std::move(*one));
  }
  std::vector<net::Accepted> accepted;
  while (!net::wait_writable(all.back().get(), Clock::now() + std::chrono::milliseconds(100), "")) {
    auto each = net::accept_tcp(listener.get());
    REQUIRE(each);
    if (*each) accepted.push_back(std::move(**each));
  }
  REQUIRE(net::end_connect_tcp(all.back().get(), where));
  return std::move(all.back());
}

int option_of(const os::Fd& fd, int option) {
  int value = 0;
  socklen_t length = sizeof value;
  REQUIRE(getsockopt(fd.get(), IPPROTO_TCP, option, &value, &length) == 0);
  return value;
}

}  // namespace

TEST_CASE("a connection that has lost packets and goes on has more time") {
  os::Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_storage where{};
  const unsigned length = net::to_sockaddr({*parse_ip_address("127.0.0.1"), 0}, where);
  REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&where), length) == 0);
  REQUIRE(::listen(listener.get(), 0) == 0);
  const os::Fd lossy = connection_with_a_loss(listener);
  const auto [near, far] = connection();
  for (const os::Fd* each : {&lossy, &near}) {
    watch_for_silence(each->get());
    CHECK(option_of(*each, TCP_THIN_LINEAR_TIMEOUTS) == 1);
  }
  const int usual = option_of(near, TCP_USER_TIMEOUT);
  CHECK(option_of(lossy, TCP_USER_TIMEOUT) == usual);
  tolerate_losses(lossy.get());
  tolerate_losses(near.get());
  CHECK(option_of(near, TCP_USER_TIMEOUT) == usual);
  CHECK(option_of(lossy, TCP_USER_TIMEOUT) > usual);
}
