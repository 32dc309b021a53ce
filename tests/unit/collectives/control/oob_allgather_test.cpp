// SPDX-License-Identifier: Apache-2.0
#include "collectives/control/oob_allgather.h"

#include <sys/socket.h>

#include <numeric>
#include <thread>

#include "collectives/control/tcp_control.h"
#include "rendezvous/net/socket.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::collectives;

namespace {

constexpr std::chrono::seconds kTimeout{60};

Deadline soon() { return Clock::now() + kTimeout; }

// Every rank in a thread; returns what `work` returned, by rank.
std::vector<std::vector<std::string>> in_a_world(
    int size, const std::function<Result<std::vector<std::string>>(OobAllgather&, int)>& work) {
  auto listener = open_control_listener(*parse_ip_address("127.0.0.1"));
  REQUIRE(listener);
  const Endpoint where = *net::local_endpoint(listener->get());
  std::vector<std::vector<std::string>> results(static_cast<std::size_t>(size));
  std::vector<std::string> errors(results.size());
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      const ControlIdentity self{rank, size, "job", "token", "info " + std::to_string(rank)};
      auto world = rank == 0 ? gather_workers(std::move(*listener), self, soon())
                             : join_tree({where, "rank 0", {}}, self, soon());
      const auto at = static_cast<std::size_t>(rank);
      if (!world) {
        errors[at] = world.error().message;
        return;
      }
      for (int other = 0; other < size; ++other) {
        if (world->rank_infos[static_cast<std::size_t>(other)] != "info " + std::to_string(other))
          errors[at] = "the wrong info of rank " + std::to_string(other);
      }
      OobAllgather oob(*world->channel, rank);
      auto received = work(oob, rank);
      // Rank 0 answers before it goes, and the others receive it.
      if (const Status flushed = world->channel->flush(-1, soon()); !flushed)
        errors[at] = flushed.error().message;
      if (received) {
        results[at] = std::move(*received);
      } else {
        errors[at] = received.error().message;
      }
    });
  }
  for (std::thread& each : ranks) each.join();
  CHECK(errors == std::vector<std::string>(errors.size()));
  return results;
}

}  // namespace

TEST_CASE("every rank gets the parts of all, in their order") {
  const std::vector<std::int32_t> all{0, 1, 2, 3, 4};
  const auto results = in_a_world(5, [&](OobAllgather& oob, int rank) {
    (void)oob.exchange(0, all, {""}, soon());  // no rank has a message
    return oob.exchange(0, all, {"part of " + std::to_string(rank)}, soon());
  });
  for (const auto& received : results) {
    CHECK(received == std::vector<std::string>{"part of 0", "part of 1", "part of 2", "part of 3",
                                               "part of 4"});
  }
}

TEST_CASE("a rank may give each of the others something else") {
  const std::vector<std::int32_t> all{0, 1, 2};
  const auto results = in_a_world(3, [&](OobAllgather& oob, int rank) {
    if (rank == 1) return oob.exchange(0, all, {"to all"}, soon());
    std::vector<std::string> parts;
    for (int to : all) parts.push_back(std::to_string(rank) + " to " + std::to_string(to));
    return oob.exchange(0, all, parts, soon());
  });
  for (int to = 0; to < 3; ++to) {
    CHECK(results[static_cast<std::size_t>(to)] ==
          std::vector<std::string>{"0 to " + std::to_string(to), "to all",
                                   "2 to " + std::to_string(to)});
  }
}

TEST_CASE("rank 0 serves an exchange in which it takes no part") {
  const std::vector<std::int32_t> all{0, 1, 2};
  const std::vector<std::int32_t> others{2, 1};
  const auto results = in_a_world(3, [&](OobAllgather& oob, int rank) {
    const std::int32_t scope = scope_within(0, 1);
    if (rank == 0) oob.define_scope(scope, others);
    Result<std::vector<std::string>> received = std::vector<std::string>{};
    if (rank != 0) received = oob.exchange(scope, others, {std::to_string(rank)}, soon());
    // Rank 0 ends when the others have what they waited for.
    const auto all_done = oob.exchange(0, all, {""}, soon());
    if (!all_done) return Result<std::vector<std::string>>(all_done.error());
    return received;
  });
  CHECK(results[0].empty());
  CHECK(results[1] == std::vector<std::string>{"2", "1"});
  CHECK(results[2] == std::vector<std::string>{"2", "1"});
}
