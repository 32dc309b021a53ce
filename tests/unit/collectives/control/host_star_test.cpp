// SPDX-License-Identifier: Apache-2.0
#include "collectives/control/host_star.h"

#include <optional>
#include <thread>

#include "collectives/control/keyed_gathering.h"
#include "rendezvous/net/socket.h"
#include "tests/support/catch.h"
#include "tests/support/descriptor_limit.h"

namespace hora::collectives {
namespace {

using namespace std::chrono_literals;

Deadline in(std::chrono::milliseconds time) { return Clock::now() + time; }
const auto kNever = [] { return false; };

struct Keyed {
  explicit Keyed(std::set<int> awaited)
      : listener(*net::listen_tcp({*parse_ip_address("127.0.0.1"), 0})),
        where(*net::local_endpoint(listener.get())) {
    gathering.listener = listener.get();
    gathering.key = std::string(kKeyBytes, 'k');
    gathering.awaited = std::move(awaited);
    gathering.deadline = in(20s);
  }
  os::Fd connect(std::string_view greeting) const {
    os::Fd socket = *net::connect_tcp(where, in(10s));
    REQUIRE(net::send_all(socket.get(), greeting, in(10s)));
    return socket;
  }
  os::Fd connect(char key, int number) const {
    os::Fd socket = connect("");
    REQUIRE(greet(socket.get(), std::string(kKeyBytes, key), number, in(10s)));
    return socket;
  }

  os::Fd listener;
  Endpoint where;
  KeyedGathering gathering;
};

TEST_CASE("Only awaited ranks with the key come, and what follows the greeting stays") {
  Keyed keyed({1, 5});
  const os::Fd silent = keyed.connect("");
  const os::Fd half = keyed.connect("kkk");
  const os::Fd wrong = keyed.connect('x', 1);
  const os::Fd unknown = keyed.connect('k', 2);
  const os::Fd first = keyed.connect('k', 5);
  const os::Fd again = keyed.connect('k', 5);
  const os::Fd second = keyed.connect('k', 1);
  REQUIRE(net::send_all(second.get(), "more", in(10s)));
  auto came = keyed.gathering.run();
  REQUIRE(came);
  REQUIRE(came->size() == 2);
  char buffer[8];
  CHECK(*net::receive_some(came->at(1).get(), buffer, sizeof buffer, in(10s)) == 4);
  for (const os::Fd* refused : {&wrong, &unknown, &again}) {
    const auto count = net::receive_some(refused->get(), buffer, sizeof buffer, in(10s));
    CHECK((!count || *count == 0));
  }
}

TEST_CASE("Outsiders that say nothing take no place for long") {
  Keyed keyed({1});
  std::vector<os::Fd> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(keyed.connect(""));
  const os::Fd rank = keyed.connect('k', 1);
  CHECK(keyed.gathering.run());
}

TEST_CASE("A rank that does not come is waited for until the deadline, or until the job ends") {
  Keyed late({1});
  late.gathering.deadline = in(10ms);
  CHECK(late.gathering.run().error().code == ErrorCode::kTimedOut);
  Keyed ended({1});
  ended.gathering.broken_off = [] { return true; };
  CHECK(ended.gathering.run().error().code == ErrorCode::kInterrupted);
}

TEST_CASE("A rank without a descriptor for the others says so at once") {
  Keyed keyed({1});
  const os::Fd rank = keyed.connect('k', 1);
  std::optional<test::DescriptorLimit> limit(std::in_place, test::next_descriptor() + 1);
  const auto came = keyed.gathering.run();
  limit.reset();
  REQUIRE_FALSE(came);
  CHECK(came.error().code == ErrorCode::kUnavailable);
}

TEST_CASE("The ranks of a host meet, and their messages arrive") {
  constexpr int kRanks = 5;
  std::vector<LocalListener> listeners;
  std::vector<std::string> cards;
  for (int place = 0; place < kRanks; ++place) {
    listeners.push_back(LocalListener::open());
    cards.push_back(listeners.back().card);
  }
  REQUIRE(can_meet_on_host(cards));
  std::vector<std::thread> others;
  for (int place = 1; place < kRanks; ++place) {
    others.emplace_back([&, place] {
      auto channel = meet_on_host(std::move(listeners[static_cast<std::size_t>(place)]), cards,
                                  place, in(20s), kNever);
      if (!channel) return;
      (*channel)->send(0, "from " + std::to_string(place));
      static_cast<void>((*channel)->flush(0, in(20s)));
      static_cast<void>((*channel)->poll(in(20s)));  // until rank 0 closes
    });
  }
  std::set<std::string> texts;
  {
    auto channel = meet_on_host(std::move(listeners[0]), cards, 0, in(20s), kNever);
    REQUIRE(channel);
    while (texts.size() < kRanks - 1) {
      for (const Incoming& each : (*channel)->poll(in(20s))) texts.insert(each.bytes);
    }
  }
  for (std::thread& other : others) other.join();
  CHECK(texts == std::set<std::string>{"from 1", "from 2", "from 3", "from 4"});
}

TEST_CASE("Ranks without a common network namespace or user do not try to meet") {
  CHECK(can_meet_on_host({"1/0/hora-a", "1/0/hora-b"}));
  CHECK_FALSE(can_meet_on_host({"1/0/hora-a", "2/0/hora-b"}));
  CHECK_FALSE(can_meet_on_host({"1/0/hora-a", "1/7/hora-b"}));
  CHECK_FALSE(can_meet_on_host({"1/0/hora-a", ""}));
  CHECK_FALSE(can_meet_on_host({"1/0/hora-a"}));
  CHECK_FALSE(can_meet_on_host({"1/0/" + std::string(200, 'a'), "1/0/hora-b"}));
}

}  // namespace
}  // namespace hora::collectives
