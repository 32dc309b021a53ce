// SPDX-License-Identifier: Apache-2.0
#include "launcher/elastic/epoch_orders.h"

#include "tests/support/catch.h"

using namespace hora::launcher;
using namespace hora::launcher::elastic;

namespace {

HostOrder order_with_ranks(const std::vector<int>& ranks) {
  HostOrder order;
  for (const int rank : ranks) {
    order.ranks.push_back(
        {rank, 0, {{"HOROVOD_RANK", std::to_string(rank)}}, StdinSource::kStream});
  }
  return order;
}

}  // namespace

TEST_CASE("an agent gets its own new workers, by their numbers") {
  // Host 0 has two agents (0 and 3), host 1 has one.
  const std::vector<HostOrder> orders = {order_with_ranks({0, 1}), order_with_ranks({2})};
  const std::vector<ElasticState::Seat> seats = {{4, 0, false}, {9, 3, true}, {8, 1, true}};
  const HostOrder third = order_of_incarnation(orders, seats, 3, 1);
  REQUIRE(third.ranks.size() == 1);
  CHECK(third.ranks[0].rank == 9);
  CHECK(third.ranks[0].stdin_source == StdinSource::kStream);
  using Variables = std::vector<std::pair<std::string, std::string>>;
  CHECK(third.ranks[0].environment ==
        Variables{{"HOROVOD_RANK", "1"}, {"HORA_WORKER", "9"}, {"HORA_ROUND", "1"}});
  CHECK(order_of_incarnation(orders, seats, 1, 1).ranks[0].rank == 8);
}

TEST_CASE("standard input is for the ranks of the first epoch") {
  const HostOrder late = order_of_incarnation({order_with_ranks({0})}, {{5, 2, true}}, 2, 2);
  CHECK(late.ranks[0].stdin_source == StdinSource::kNull);
}
