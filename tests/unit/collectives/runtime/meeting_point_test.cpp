// SPDX-License-Identifier: Apache-2.0
// All ranks of a world are threads of this process, with one store.
#include "collectives/runtime/meeting_point.h"

#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/control/control_channel.h"
#include "collectives/runtime/rank_location.h"
#include "tests/support/catch.h"
#include "tests/support/memory_store.h"

using namespace hora;
using namespace hora::collectives;

namespace {

constexpr int kSize = 6;
using Hosts = std::vector<std::string>;

Communicator::Start start_of(int rank, const std::shared_ptr<rendezvous::Store>& store,
                             const Hosts& hosts, int star_ranks) {
  Communicator::Start start;
  const auto place = place_among(hosts, rank);
  Settings& settings = start.settings;
  settings.rank = rank;
  settings.size = kSize;
  settings.local_rank = place.local_rank;
  settings.local_size = place.local_size;
  settings.cross_rank = place.cross_rank;
  settings.cross_size = place.cross_size;
  settings.rendezvous_token = "a token";
  settings.star_ranks = star_ranks;
  settings.start_timeout = std::chrono::milliseconds(2000);
  start.machine = hosts[static_cast<std::size_t>(rank)];
  start.address = "127.0.0.1";
  start.store = store;
  start.meeting_key = "hora_control/start-0";
  return start;
}

// The answers to the ranks that come, by rank.
std::map<int, std::string> meet_without(const std::set<int>& missing, const Hosts& hosts,
                                        int star_ranks,
                                        const std::shared_ptr<rendezvous::MemoryStore>& store =
                                            std::make_shared<rendezvous::MemoryStore>()) {
  (void)store->set("hora_control/hosts", "a 0-1\nb 2-3\nc 4-5\n", Deadline::max());
  std::map<int, std::string> reported;
  std::map<int, std::unique_ptr<ControlChannel>> channels;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kSize; ++rank) {
    if (missing.count(rank) > 0) continue;
    threads.emplace_back([&, rank, &text = reported[rank], &channel = channels[rank]] {
      auto world = meet(start_of(rank, store, hosts, star_ranks), std::to_string(rank));
      text = world ? "met" : world.error().message;
      if (world) channel = std::move(world->channel);
    });
  }
  for (std::thread& thread : threads) thread.join();
  threads.clear();
  // All at once, as the ranks of a job: each waits for the others to hang up.
  for (auto& [rank, channel] : channels) {
    if (channel) channel->hang_up();
  }
  for (auto& [rank, channel] : channels) {
    threads.emplace_back([&channel = channel] { channel.reset(); });
  }
  for (std::thread& thread : threads) thread.join();
  return reported;
}

const Hosts kOneHost(kSize, "a");
const Hosts kThreeHosts{"a", "a", "b", "b", "c", "c"};

struct Case {
  std::set<int> missing;
  std::string ranks, where;
};

// Nearly all of the time is waiting, so all of them wait at once.
void expect_all(const std::vector<Case>& cases) {
  const std::vector<std::pair<Hosts, int>> layouts{
      {kOneHost, 256}, {kThreeHosts, 256}, {kThreeHosts, 0}};
  std::vector<std::future<std::map<int, std::string>>> results;
  for (const Case& each : cases) {
    for (const auto& [hosts, star_ranks] : layouts) {
      results.push_back(std::async(std::launch::async, meet_without, each.missing, hosts,
                                   star_ranks, std::make_shared<rendezvous::MemoryStore>()));
    }
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Case& each = cases[i / layouts.size()];
    const auto& [hosts, star_ranks] = layouts[i % layouts.size()];
    INFO("without " << each.ranks << ", on " << hosts.back() << ", HORA_STAR_RANKS=" << star_ranks);
    for (const auto& [rank, reported] : results[i].get()) {
      INFO("rank " << rank);
      CHECK(reported ==
            "timed out waiting for rank" + std::string(each.missing.size() == 1 ? " " : "s ") +
                each.ranks +
                " to start (HOROVOD_GLOO_TIMEOUT_SECONDS sets the limit): " + each.where);
    }
  }
}

}  // namespace

TEST_CASE("meeting: all ranks meet, in a star and in a tree") {
  for (const int star_ranks : {256, 0}) {
    for (const auto& [rank, reported] : meet_without({}, kThreeHosts, star_ranks)) {
      INFO("rank " << rank << ", HORA_STAR_RANKS=" << star_ranks);
      CHECK(reported == "met");
    }
  }
}

TEST_CASE("meeting: two processes that are the same rank are named") {
  for (const int rank : {0, 3}) {
    INFO("rank " << rank);
    const auto store = std::make_shared<rendezvous::MemoryStore>();
    std::vector<std::future<Result<ControlWorld>>> twins;
    for (int each = 0; each < 2; ++each) {
      twins.push_back(std::async(std::launch::async,
                                 [&] { return meet(start_of(rank, store, kOneHost, 256), ""); }));
    }
    int named = 0;
    for (auto& each : twins) {
      const auto world = each.get();
      REQUIRE_FALSE(world);
      named += world.error().message.find("are both rank " + std::to_string(rank) +
                                          " (HOROVOD_RANK must differ") != std::string::npos;
    }
    CHECK(named >= (rank == 0 ? 1 : 2));  // two ranks 0 may give up in the same moment
  }
}

TEST_CASE("meeting: a later meeting under the same key finds no rank of an earlier one") {
  for (const int star_ranks : {256, 0}) {
    const auto store = std::make_shared<rendezvous::MemoryStore>();
    for (int world = 0; world < 3; ++world) {
      for (const auto& [rank, reported] : meet_without({}, kThreeHosts, star_ranks, store)) {
        INFO("rank " << rank << " of world " << world << ", HORA_STAR_RANKS=" << star_ranks);
        CHECK(reported == "met");
      }
    }
  }
}

TEST_CASE("meeting: all ranks that come learn exactly which ranks did not") {
  expect_all({
      {{3}, "3", "rank 3 on b"},
      {{2}, "2", "rank 2 on b"},  // a leader: its messages carry those of rank 3
      {{0}, "0", "rank 0 on a"},
      {{0, 2, 5}, "0, 2, 5", "rank 0 on a, rank 2 on b, rank 5 on c"},
      {{1, 4, 5}, "1, 4, 5", "rank 1 on a, ranks 4, 5 on c"},
      {{0, 2, 4}, "0, 2, 4", "rank 0 on a, rank 2 on b, rank 4 on c"},  // all leaders
  });
}
