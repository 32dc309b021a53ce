// SPDX-License-Identifier: Apache-2.0
// Autotuning in real worlds: all ranks change together, results stay right, the best is kept.
#include <unistd.h>

#include <fstream>
#include <set>
#include <sstream>

#include "calls.h"
#include "ranks.h"
#include "tensors.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::test;
using collectives::Communicator;
using collectives::Parameters;

namespace {

constexpr int kSamples = 7;
const std::vector<std::int64_t> kCounts{1, 700, 3000, 4500, 20'000, 60'000};

void run_step(Communicator& communicator, std::vector<Tensor>& inputs,
              std::vector<Tensor>& outputs) {
  std::vector<Call> calls;
  for (std::size_t i = 0; i < kCounts.size(); ++i) {
    const std::string name = "t" + std::to_string(i);
    calls.emplace_back(communicator, reduce_request(name.c_str(), inputs[i], outputs[i], HORA_SUM));
  }
  for (Call& call : calls) call.finish();
  std::vector<int> ranks;
  for (int rank = 0; rank < communicator.world().settings.size; ++rank) ranks.push_back(rank);
  for (std::size_t i = 0; i < kCounts.size(); ++i) {
    for (std::int64_t at : {std::int64_t{0}, kCounts[i] / 2, kCounts[i] - 1}) {
      const double expected = reduced(HORA_INT32, HORA_SUM, ranks, at);
      check(outputs[i].get(at) == expected,
            difference("allreduce", at, outputs[i].get(at), expected));
    }
  }
}

std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> found;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, ',');) found.push_back(cell);
  return found;
}

}  // namespace

TEST_CASE("autotune: all ranks change their parameters together and keep the best") {
  if (launched_size() > 0) return;  // a launched world has the settings of its environment
  const std::string log = "/tmp/hora-autotune-" + std::to_string(::getpid()) + ".csv";
  for (const std::vector<std::string>& hosts :
       {std::vector<std::string>{}, std::vector<std::string>{"a", "a", "b", "b"}}) {
    WorldOptions options;
    options.size = 4;
    options.hosts = hosts;
    options.adjust = [&](collectives::Settings& settings) {
      settings.autotune = settings.rank == 0;
      settings.autotune_log = log;
      settings.autotune_options = {1, 1, kSamples, 0.5};
    };
    std::vector<std::vector<Parameters>> used(4);
    const auto failures = run_ranks(options, [&](Communicator& communicator) {
      const auto rank = static_cast<std::size_t>(communicator.world().settings.rank);
      std::vector<Tensor> inputs;
      std::vector<Tensor> outputs;
      for (const std::int64_t count : kCounts) {
        inputs.emplace_back(HORA_INT32, std::vector<std::int64_t>{count});
        outputs.emplace_back(HORA_INT32, std::vector<std::int64_t>{count});
        fill(inputs.back(), static_cast<int>(rank));
      }
      for (int step = 0; step < (1 + kSamples) * 7 + 10; ++step) {
        run_step(communicator, inputs, outputs);
        used[rank].push_back(communicator.engine().parameters());
      }
    });
    for (const std::string& failure : failures) CHECK(failure == "");
    for (std::size_t rank = 1; rank < used.size(); ++rank) CHECK(used[rank] == used[0]);
    std::set<std::int64_t> thresholds;
    for (const Parameters& each : used[0]) thresholds.insert(each.fusion_threshold_bytes);
    CHECK(thresholds.size() > 2);

    std::ifstream file(log);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    // Two less where the search itself found nothing better than the start.
    REQUIRE((lines.size() == 1 + kSamples + 1 || lines.size() == 1 + kSamples - 2 + 1));
    CHECK(lines[0] ==
          "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,"
          "cycle_time_ms,tensor_fusion_threshold,score,shm_small_bytes,shm_part_bytes");
    const std::vector<std::string> best = cells(lines.back());
    REQUIRE(best.size() == 9);
    CHECK(best[1] == (hosts.empty() ? "0" : "1"));
    CHECK(std::count(lines.begin() + 1, lines.end() - 1, lines.back()) == 1);
    const Parameters& last = used[0].back();
    CHECK(std::stod(best[5]) * (1 << 20) == Approx(last.fusion_threshold_bytes));
    CHECK(std::stod(best[4]) * 1000 == Approx(last.cycle_time_us));
    CHECK(std::stod(best[6]) > 0);
    CHECK(used[0][used[0].size() - 5] == last);
  }
  ::unlink(log.c_str());
}
