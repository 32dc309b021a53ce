// SPDX-License-Identifier: Apache-2.0
// Collectives of ranks on several hosts, composed of shared memory and a network backend, against
// the same results as everywhere.
#include <algorithm>
#include <map>

#include "calls.h"
#include "collectives/backends/hierarchical_backend.h"
#include "ranks.h"
#include "tensors.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::test;
using collectives::Choice;
using collectives::Communicator;

namespace {

using Hosts = std::vector<std::string>;

const std::vector<Hosts>& topologies() {
  static const std::vector<Hosts> all = {{"a", "a", "b", "b"},      {"a", "a", "b"},
                                         {"a", "b", "a", "b"},      {"a", "b", "b", "c"},
                                         {"a", "a", "a", "b", "b"}, {"a", "a", "b", "b", "c", "c"}};
  return all;
}

void run_all(const Hosts& hosts, Choice hierarchical, const RankBody& body) {
  WorldOptions options;
  options.size = static_cast<int>(hosts.size());
  options.hosts = hosts;
  options.hierarchical = hierarchical;
  const std::vector<std::string> failures = run_ranks(options, body);
  for (std::size_t rank = 0; rank < failures.size(); ++rank) {
    INFO("rank " << rank << " of " << hosts.size());
    CHECK(failures[rank] == "");
  }
}

std::vector<int> all_ranks(const Communicator& communicator) {
  std::vector<int> ranks;
  for (int rank = 0; rank < communicator.world().settings.size; ++rank) ranks.push_back(rank);
  return ranks;
}

bool composed(const Communicator& communicator) {
  const auto enabled = communicator.engine().backends().enabled();
  return std::find(enabled.begin(), enabled.end(), "hierarchical") != enabled.end();
}

void check_allreduce(Communicator& communicator, hora_dtype dtype, hora_reduce_op op,
                     std::int64_t count) {
  const std::vector<int> ranks = all_ranks(communicator);
  Tensor input(dtype, {count});
  Tensor output(dtype, {count});
  fill(input, communicator.world().settings.rank);
  Call(communicator, reduce_request("x", input, output, op)).finish();
  for (std::int64_t i = 0; i < count; ++i) {
    const double expected = reduced(dtype, op, ranks, i);
    check(output.get(i) == expected, difference("allreduce", i, output.get(i), expected));
  }
}

void check_allgather(Communicator& communicator, hora_dtype dtype, std::int64_t base) {
  const int rank = communicator.world().settings.rank;
  Tensor input(dtype, {base * rank + (rank == 1 ? 0 : 3), 2});
  fill(input, rank);
  Call call(communicator, result_request(HORA_ALLGATHER, "g", input));
  call.finish();
  const auto operation = call.operation();
  std::int64_t at = 0;
  for (const int each : all_ranks(communicator)) {
    const std::int64_t count = (base * each + (each == 1 ? 0 : 3)) * 2;
    for (std::int64_t i = 0; i < count; ++i, ++at) {
      const double found = read_element(call.result(), dtype, at);
      const double expected = value_at(dtype, each, i);
      check(found == expected, difference("allgather", at, found, expected));
    }
  }
  check(operation->result_shape.front() * 2 == at, "the number of rows");
}

}  // namespace

TEST_CASE("hierarchy: who drives which part, between which ranks") {
  const auto plan = collectives::plan_hierarchy({3, 4, 5, 8, 9}, {0, 0, 0, 2, 2}, 1);
  CHECK(plan.local == std::vector<std::int32_t>{3, 4, 5});
  CHECK(plan.local_index == 1);
  CHECK(plan.drivers == 2);
  CHECK(plan.driving);
  CHECK(plan.peers == std::vector<std::int32_t>{4, 9});
  CHECK(plan.host_index == 0);
  CHECK(plan.host_sizes == std::vector<int>{3, 2});
  CHECK(plan.first_member == std::vector<int>{0, 3});
  CHECK(plan.in_blocks);
  CHECK_FALSE(collectives::plan_hierarchy({3, 4, 5, 8, 9}, {0, 0, 0, 2, 2}, 2).driving);
  CHECK_FALSE(collectives::plan_hierarchy({0, 1, 2, 3}, {0, 1, 0, 1}, 0).in_blocks);
  CHECK(collectives::is_worth_hierarchy({0, 0, 1}));
  CHECK_FALSE(collectives::is_worth_hierarchy({0, 1, 2}));
  CHECK_FALSE(collectives::is_worth_hierarchy({0, 0}));
}

TEST_CASE("hierarchical: every dtype and reduction, small and large") {
  run_all({"a", "a", "b", "b"}, Choice::kAuto, [](Communicator& communicator) {
    check(composed(communicator), "the hierarchical backend is not in use");
    for (const hora_dtype dtype : all_dtypes()) {
      for (const hora_reduce_op op : reductions_of(dtype)) {
        check_allreduce(communicator, dtype, op, 5);
      }
      check_allreduce(communicator, dtype, reductions_of(dtype).front(), 20'001);
      check_allgather(communicator, dtype, 1);
    }
  });
}

TEST_CASE("hierarchical: an average of the largest numbers is finite") {
  run_all({"a", "a", "a", "b", "b"}, Choice::kAuto, [](Communicator& communicator) {
    for (const std::int64_t count : {5, 20'001}) {
      Tensor input(HORA_FLOAT16, {count});
      Tensor output(HORA_FLOAT16, {count});
      for (std::int64_t i = 0; i < count; ++i) input.set(i, 65504);
      Call(communicator, reduce_request("x", input, output, HORA_AVERAGE)).finish();
      for (std::int64_t i = 0; i < count; ++i) {
        check(output.get(i) == 65504, difference("average", i, output.get(i), 65504));
      }
    }
  });
}

TEST_CASE("hierarchical: every topology") {
  for (const Hosts& hosts : topologies()) {
    run_all(hosts, Choice::kAuto, [](Communicator& communicator) {
      check(composed(communicator), "the hierarchical backend is not in use");
      for (const std::int64_t count : {0, 1, 4096, 4097, 300'003}) {
        check_allreduce(communicator, HORA_FLOAT32, HORA_AVERAGE, count);
      }
      check_allgather(communicator, HORA_FLOAT32, 1);
      check_allgather(communicator, HORA_FLOAT32, 9000);
    });
  }
}

TEST_CASE("hierarchical: fused, scaled, in place, in a process set, with a joined rank") {
  run_all({"a", "a", "b", "b"}, Choice::kOn, [](Communicator& communicator) {
    const int rank = communicator.world().settings.rank;
    std::vector<Tensor> tensors;
    std::vector<hora_request> group;
    const std::vector<std::string> names = {"t0", "t1", "t2"};
    for (std::int64_t i = 0; i < 3; ++i) {
      tensors.emplace_back(HORA_FLOAT32, std::vector<std::int64_t>{i * 9000 + 1});
      fill(tensors.back(), rank);
    }
    for (std::size_t i = 0; i < 3; ++i) {
      group.push_back(reduce_request(names[i].c_str(), tensors[i], tensors[i], HORA_SUM));
      group.back().prescale = 0.5;
      group.back().postscale = 4;
    }
    Call(communicator, group).finish();
    for (Tensor& tensor : tensors) {
      for (std::int64_t i = 0; i < tensor.count(); ++i) {
        const double expected = 2 * reduced(HORA_FLOAT32, HORA_SUM, {0, 1, 2, 3}, i);
        check(tensor.get(i) == expected, difference("fused", i, tensor.get(i), expected));
      }
    }
    std::int32_t id = 0;
    check(communicator.add_process_set({1, 2, 3}, &id).status == HORA_OK, "adding a set");
    if (rank > 0) {
      Tensor tensor(HORA_INT32, {20'000});
      fill(tensor, rank);
      auto request = reduce_request("s", tensor, tensor, HORA_SUM);
      request.process_set = id;
      Call(communicator, request).finish();
      for (std::int64_t i = 0; i < tensor.count(); ++i) {
        const double expected = reduced(HORA_INT32, HORA_SUM, {1, 2, 3}, i);
        check(tensor.get(i) == expected, difference("set", i, tensor.get(i), expected));
      }
    }
    check(communicator.remove_process_set(id).status == HORA_OK, "removing a set");
    if (rank == 3) {
      Call(communicator, bare_request(HORA_JOIN)).finish();
      return;
    }
    Tensor tensor(HORA_FLOAT64, {10'000});
    fill(tensor, rank);
    Call(communicator, reduce_request("j", tensor, tensor, HORA_SUM)).finish();
    for (std::int64_t i = 0; i < tensor.count(); ++i) {
      const double expected = reduced(HORA_FLOAT64, HORA_SUM, {0, 1, 2}, i);
      check(tensor.get(i) == expected, difference("joined", i, tensor.get(i), expected));
    }
    Call(communicator, bare_request(HORA_JOIN)).finish();
  });
}

TEST_CASE("hierarchical: off means off, and nothing to gain means off") {
  run_all({"a", "a", "b", "b"}, Choice::kOff, [](Communicator& communicator) {
    check(!composed(communicator), "the hierarchical backend is in use");
    check_allreduce(communicator, HORA_FLOAT32, HORA_SUM, 5000);
  });
  run_all({"a", "b", "c"}, Choice::kOn, [](Communicator& communicator) {
    check(!composed(communicator), "the hierarchical backend is in use");
    check_allgather(communicator, HORA_FLOAT32, 100);
  });
}
