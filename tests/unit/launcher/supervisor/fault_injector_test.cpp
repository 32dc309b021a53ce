// SPDX-License-Identifier: Apache-2.0
#include "launcher/supervisor/fault_injector.h"

#include <signal.h>

#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher;
using namespace std::chrono_literals;

namespace {

struct Injection {
  std::unique_ptr<os::EventLoop> loop = std::move(*os::EventLoop::create());
  std::vector<std::pair<int, bool>> strikes;  // rank, sent
  std::unique_ptr<FaultInjector> injector;

  explicit Injection(std::vector<ChaosStep> steps) {
    FaultInjector::Handlers handlers;
    handlers.signal = [](const ChaosStep& step) { return step.rank != 7; };
    handlers.on_strike = [this](const ChaosStep& step, std::chrono::milliseconds at, bool sent) {
      CHECK(at >= step.at);
      strikes.emplace_back(step.rank, sent);
      if (step.rank == 9) injector->stop();
    };
    injector = std::make_unique<FaultInjector>(*loop, std::move(steps), std::move(handlers));
  }

  void run() {
    loop->call_after(60ms, [this] { loop->stop(); });
    REQUIRE(loop->run());
  }
};

}  // namespace

TEST_CASE("the faults of a schedule come in its order, and only once it has begun") {
  Injection early({{0ms, 0, 1, SIGKILL}});
  early.run();
  CHECK(early.strikes.empty());
  CHECK(early.injector->left() == 1);

  Injection faults({{0ms, 0, 1, SIGSTOP}, {10ms, 1, 7, SIGKILL}, {20ms, 0, 1, SIGCONT}});
  faults.injector->begin();
  faults.run();
  CHECK(faults.strikes == std::vector<std::pair<int, bool>>{{1, true}, {7, false}, {1, true}});
  CHECK(faults.injector->left() == 0);
}

TEST_CASE("nothing is injected into a job that is being ended") {
  Injection faults({{0ms, 0, 9, SIGKILL}, {10ms, 0, 1, SIGKILL}});
  faults.injector->begin();
  faults.run();
  CHECK(faults.strikes == std::vector<std::pair<int, bool>>{{9, true}});
}
