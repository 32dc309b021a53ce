// SPDX-License-Identifier: Apache-2.0
// A world of three hosts that are below each other, over real connections:
//
//   0 -- 1                 0 leads the first host, 2 the second, 5 the third
//   +--- 2 -- 3, 4
//        +--- 5 -- 6
#include "collectives/control/tree_node.h"

#include <poll.h>

#include <array>
#include <future>
#include <numeric>
#include <semaphore>
#include <set>
#include <thread>

#include "collectives/control/messages.h"
#include "collectives/control/tcp_channel.h"
#include "rendezvous/net/socket.h"
#include "tests/support/catch.h"
#include "tests/unit/collectives/control/refused_sends.h"

using namespace hora;
using namespace hora::collectives;

namespace {

constexpr int kSize = 7;
constexpr std::array<int, kSize> kAbove{-1, 0, 0, 2, 2, 2, 5};
constexpr std::chrono::seconds kTimeout{60};

Deadline in(std::chrono::milliseconds time) { return Clock::now() + time; }

ControlIdentity identity(int rank) {
  return {rank, kSize, "job", "a token", "info of " + std::to_string(rank)};
}

bool leads(int rank) { return rank == 0 || rank == 2 || rank == 5; }

struct ListeningPoints {
  ListeningPoints() {
    for (int rank = 0; rank < kSize; ++rank) {
      if (!leads(rank)) continue;
      auto listener = open_control_listener(*parse_ip_address("127.0.0.1"));
      REQUIRE(listener);
      where[static_cast<std::size_t>(rank)] = *net::local_endpoint(listener->get());
      listeners[static_cast<std::size_t>(rank)] = std::move(*listener);
    }
  }
  std::array<Endpoint, kSize> where;
  std::array<os::Fd, kSize> listeners;
};

Result<ControlWorld> join(ListeningPoints& points, int rank,
                          std::chrono::milliseconds timeout = kTimeout) {
  const auto at = static_cast<std::size_t>(rank);
  if (rank == 0) return gather_tree(std::move(points.listeners[0]), identity(0), in(timeout));
  return join_tree({points.where[static_cast<std::size_t>(kAbove[at])], "the rank above",
                    std::move(points.listeners[at])},
                   identity(rank), in(kTimeout));
}

class Tree {
 public:
  Tree() {
    ListeningPoints points;
    std::array<std::optional<Result<ControlWorld>>, kSize> met;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kSize; ++rank) {
      threads.emplace_back([&, rank] { met[static_cast<std::size_t>(rank)] = join(points, rank); });
    }
    for (std::thread& each : threads) each.join();
    for (int rank = 0; rank < kSize; ++rank) {
      auto& world = *met[static_cast<std::size_t>(rank)];
      INFO(rank << ": " << (world ? "" : world.error().message));
      REQUIRE(world);
      REQUIRE(world->rank_infos.size() == kSize);
      for (int each = 0; each < kSize; ++each) {
        CHECK(world->rank_infos[static_cast<std::size_t>(each)] ==
              "info of " + std::to_string(each));
      }
      channels_[static_cast<std::size_t>(rank)] = std::move(world->channel);
    }
  }
  // All at once, as the ranks of a job: each waits for the others to hang up.
  ~Tree() {
    std::vector<std::thread> threads;
    for (auto& each : channels_) {
      if (each) each->hang_up();
    }
    for (auto& each : channels_) threads.emplace_back([&each] { each.reset(); });
    for (std::thread& each : threads) each.join();
  }

  ControlChannel& operator[](int rank) { return *channels_[static_cast<std::size_t>(rank)]; }
  void lose(int rank) { channels_[static_cast<std::size_t>(rank)].reset(); }

  // The messages that a rank receives, at least that many.
  std::vector<Incoming> receive(int rank, std::size_t count) {
    std::vector<Incoming> received;
    const Deadline deadline = in(kTimeout);
    while (received.size() < count && Clock::now() < deadline) {
      for (Incoming& each : (*this)[rank].poll(deadline)) received.push_back(std::move(each));
    }
    REQUIRE(received.size() >= count);
    return received;
  }

 private:
  std::array<std::unique_ptr<ControlChannel>, kSize> channels_;
};

std::vector<std::int32_t> others() {
  std::vector<std::int32_t> ranks(kSize - 1);
  std::iota(ranks.begin(), ranks.end(), 1);
  return ranks;
}

std::string requests(const std::string& text) {
  return control_message(ControlMessage::kRequests, text);
}

bool shows_an_end(ControlChannel& channel) {
  std::vector<pollfd> fds;
  for (const int fd : channel.liveness_fds()) fds.push_back({fd, POLLRDHUP, 0});
  return ::poll(fds.data(), fds.size(), 60'000) > 0;
}

}  // namespace

TEST_CASE("a kernel that has no room at this moment keeps no rank out of the tree") {
  for (const int refused : {1, 2, 5, 12}) {
    INFO(refused);
    test::refuse_sends(refused, ENOBUFS);
    Tree tree;
    CHECK(test::refused_sends_left() <= 0);
  }
  test::refuse_sends(0, 0);
}

TEST_CASE("messages of all ranks reach rank 0 in their order, and its own reach each") {
  Tree tree;
  for (int turn = 0; turn < 50; ++turn) {
    for (int rank = 1; rank < kSize; ++rank) {
      tree[rank].send(0, requests("the same"));
      tree[rank].send(0, requests(std::to_string(rank) + " in turn " + std::to_string(turn)));
    }
  }
  std::array<std::vector<std::string>, kSize> said;
  for (const Incoming& each : tree.receive(0, 100 * (kSize - 1))) {
    REQUIRE(!each.gone);
    said[static_cast<std::size_t>(each.rank)].push_back(each.bytes);
  }
  for (int rank = 1; rank < kSize; ++rank) {
    const auto& of_rank = said[static_cast<std::size_t>(rank)];
    REQUIRE(of_rank.size() == 100);
    for (std::size_t turn = 0; turn < 50; ++turn) {
      CHECK(of_rank[2 * turn] == requests("the same"));
      CHECK(of_rank[2 * turn + 1] ==
            requests(std::to_string(rank) + " in turn " + std::to_string(turn)));
    }
  }
  tree[0].send_to_all(others(), "to all");
  tree[0].send_to_all({1, 3, 5, 6}, "to some");
  for (int rank = 1; rank < kSize; ++rank) {
    tree[0].send(rank, "to " + std::to_string(rank));
    const bool some = rank == 1 || rank == 3 || rank >= 5;
    const auto received = tree.receive(rank, some ? 3 : 2);
    CHECK(received.front().bytes == "to all");
    CHECK(received[1].bytes == (some ? "to some" : "to " + std::to_string(rank)));
    CHECK(received.back().bytes == "to " + std::to_string(rank));
    CHECK(received.back().rank == 0);
  }
}

TEST_CASE("a large message goes through all nodes, both ways") {
  Tree tree;
  const std::string large(5'000'000, 'x');
  tree[6].send(0, large);
  bool all_sent = false;
  std::thread sender([&] { all_sent = static_cast<bool>(tree[6].flush(0, in(kTimeout))); });
  CHECK(tree.receive(0, 1).front().bytes == large);
  sender.join();
  CHECK(all_sent);
  tree[0].send_to_all(others(), large);
  std::thread zero([&] { all_sent = static_cast<bool>(tree[0].flush(-1, in(kTimeout))); });
  for (int rank = 1; rank < kSize; ++rank) CHECK(tree.receive(rank, 1).front().bytes == large);
  zero.join();
  CHECK(all_sent);
}

TEST_CASE("rank 0 learns who is gone, and its blocked thread is interrupted") {
  Tree tree;
  tree.lose(6);
  CHECK(shows_an_end(tree[0]));
  const auto received = tree.receive(0, 1);
  CHECK(received.front().rank == 6);
  CHECK(received.front().gone);
  CHECK(!received.front().cut_off);
  tree[4].send(0, "still here");
  CHECK(tree.receive(0, 1).front().bytes == "still here");
}

TEST_CASE("a lost leader is named by rank 0 and by those who are behind it") {
  Tree tree;
  tree.lose(2);
  std::set<int> cut_off;
  for (const Incoming& each : tree.receive(0, 5)) {
    CHECK(each.gone);
    CHECK(each.cut_off == (each.rank != 2));
    if (each.cut_off) cut_off.insert(each.rank);
  }
  CHECK(cut_off == std::set<int>{3, 4, 5, 6});
  for (const int rank : {3, 4}) {
    CHECK(shows_an_end(tree[rank]));
    // As the other end of the own connection, or by word of a node that ends in order.
    const Incoming first = tree.receive(rank, 1).front();
    CHECK((first.gone && first.rank == 2));
  }
  for (const int rank : {5, 6}) {
    CHECK(shows_an_end(tree[rank]));
    const Incoming first = tree.receive(rank, 2).front();
    CHECK(kind_of(first.bytes) == ControlMessage::kLost);
    WireReader lost(std::string_view(first.bytes).substr(1));
    CHECK(lost.integer() == 2);
  }
}

TEST_CASE("the end of rank 0 reaches all") {
  Tree tree;
  tree[0].send_to_all(others(), control_message(ControlMessage::kAbort, "over"));
  tree.lose(0);
  for (int rank = 1; rank < kSize; ++rank) {
    CHECK(shows_an_end(tree[rank]));
    CHECK(tree.receive(rank, 2).front().bytes == control_message(ControlMessage::kAbort, "over"));
  }
}

TEST_CASE("ranks that do not come are named, wherever they belong, and the others learn it") {
  ListeningPoints points;
  std::array<std::string, kSize> errors;
  std::vector<std::thread> threads;
  for (const int rank : {0, 2, 3, 5}) {
    threads.emplace_back([&, rank] {
      const auto world = join(points, rank, std::chrono::seconds(1));
      if (!world) errors[static_cast<std::size_t>(rank)] = world.error().message;
    });
  }
  for (std::thread& each : threads) each.join();
  for (const int rank : {0, 2, 3, 5}) {
    CHECK(errors[static_cast<std::size_t>(rank)].find("ranks 1, 4, 6") != std::string::npos);
  }
}

TEST_CASE("the second process of a rank is refused, wherever it comes") {
  ListeningPoints points;
  std::vector<std::thread> threads;
  std::array<bool, kSize> met{};
  const auto come = [&](int rank) {
    threads.emplace_back(
        [&, rank] { met[static_cast<std::size_t>(rank)] = join(points, rank).has_value(); });
  };
  for (const int rank : {0, 2, 3, 4, 5}) come(rank);
  // One of the two comes first. Once all ranks have met, no other is admitted and refused: the last
  // rank waits for that.
  std::counting_semaphore<2> one_answered(0);
  const auto come_as_1 = [&](int above) {
    auto world = join_tree(
        {points.where[static_cast<std::size_t>(above)], "rank " + std::to_string(above), {}},
        identity(1), in(kTimeout));
    one_answered.release();
    return world;
  };
  auto other = std::async(std::launch::async, come_as_1, 0);
  auto twice = std::async(std::launch::async, come_as_1, 2);
  CHECK(one_answered.try_acquire_for(kTimeout));
  come(6);
  const auto at_0 = other.get();
  const auto at_2 = twice.get();
  for (std::thread& each : threads) each.join();
  CHECK(at_0.has_value() != at_2.has_value());
  const auto& refused = at_0 ? at_2 : at_0;
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("rank 1 already") != std::string::npos);
  for (const int rank : {0, 2, 3, 4, 5, 6}) CHECK(met[static_cast<std::size_t>(rank)]);
}
