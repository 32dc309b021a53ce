// SPDX-License-Identifier: Apache-2.0
// A client at an agent's door, a server at the launcher's end, and frames in between.
#include "launcher/network/relay.h"

#include <poll.h>

#include <chrono>
#include <string>
#include <thread>

#include "launcher/protocol/messages.h"
#include "rendezvous/net/socket.h"
#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

constexpr std::chrono::seconds kTimeout{20};

Deadline deadline() { return Clock::now() + kTimeout; }

std::string read_all(int fd) {
  std::string text;
  char chunk[16 * 1024];
  while (true) {
    const auto got = net::receive_some(fd, chunk, sizeof chunk, deadline());
    if (!got || *got == 0) return text;
    text.append(chunk, *got);
  }
}

// Both ends on one loop; each frame takes a turn of its own.
struct Relay {
  Relay() {
    loop = std::move(*os::EventLoop::create());
    server = std::move(*net::listen_tcp({*parse_ip_address("127.0.0.1"), 0}));
    launchers_end = std::make_unique<RelayChannels>(
        *loop, [this](const RelayMessage& message) { deliver(true, message); });
    door = std::move(*RelayDoor::open(
        *loop, "127.0.0.1", [this](const RelayMessage& message) { deliver(false, message); }));
  }

  void deliver(bool to_agent, const RelayMessage& message) {
    if (const auto* bytes = std::get_if<RelayedBytes>(&message)) {
      most_frame = std::max(most_frame, encode(*bytes).size());
    }
    loop->post([this, to_agent, message] {
      RelayChannels& end = to_agent ? door->channels() : *launchers_end;
      if (const auto* taken = std::get_if<RelayedBytesTaken>(&message)) {
        return end.on_taken(taken->number);
      }
      if (const auto* opened = std::get_if<RelayOpened>(&message)) {
        return end.add(opened->number, std::move(*net::connect_tcp(
                                           *net::local_endpoint(server.get()), deadline())));
      }
      const auto& relayed = std::get<RelayedBytes>(message);
      end.on_data(relayed.number, relayed.bytes);
    });
  }

  os::Fd accept() {
    (void)net::wait_readable(server.get(), deadline(), "a connection");
    return std::move((*net::accept_tcp(server.get()))->fd);
  }
  os::Fd connect() {
    return std::move(*net::connect_tcp(
        {*parse_ip_address("127.0.0.1"), static_cast<std::uint16_t>(door->port())}, deadline()));
  }
  template <typename Test>
  void run(Test test) {
    std::thread thread([&] {
      test();
      loop->post([this] { loop->stop(); });
    });
    CHECK(loop->run());
    thread.join();
  }

  std::unique_ptr<os::EventLoop> loop;
  os::Fd server;
  std::unique_ptr<RelayChannels> launchers_end;
  std::unique_ptr<RelayDoor> door;
  std::size_t most_frame = 0;
};

TEST_CASE("Relayed connections carry requests and answers, whole and apart") {
  Relay relay;
  const std::string large(3'000'000, 'x');
  relay.run([&] {
    os::Fd first = relay.connect(), second = relay.connect();
    os::Fd first_served = relay.accept(), second_served = relay.accept();
    // Not in the order in which they came.
    CHECK(net::send_all(second.get(), "two", deadline()));
    CHECK(net::send_all(first.get(), "one", deadline()));
    char text[8] = {};
    CHECK(*net::receive_some(first_served.get(), text, sizeof text, deadline()) == 3);
    CHECK(std::string(text) == "one");
    CHECK(*net::receive_some(second_served.get(), text, sizeof text, deadline()) == 3);
    CHECK(std::string(text) == "two");
    // A slow reader delays no other.
    bool sent = false;  // checked after the thread: Catch's checks are for one at a time
    std::thread writer([&] {
      sent = static_cast<bool>(net::send_all(first_served.get(), large, deadline()));
      first_served.reset();
    });
    CHECK(net::send_all(second_served.get(), "pass", deadline()));
    CHECK(*net::receive_some(second.get(), text, sizeof text, deadline()) == 4);
    CHECK(read_all(first.get()) == large);
    writer.join();
    CHECK(sent);
  });
  CHECK(relay.most_frame <= kMostRelayed + 4);
}

TEST_CASE("The end of a relayed connection reaches the other side") {
  Relay relay;
  relay.run([&] {
    os::Fd client = relay.connect();
    CHECK(net::send_all(client.get(), "x", deadline()));
    os::Fd served = relay.accept();
    client.reset();
    CHECK(read_all(served.get()) == "x");
  });
  CHECK(relay.door->channels().size() == 0);
}

}  // namespace
}  // namespace hora::launcher
