// SPDX-License-Identifier: Apache-2.0
#include "launcher/doctor/common_world.h"

#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher::doctor;
using namespace std::chrono_literals;

namespace {

using Ways = std::vector<PeerRounds::Way>;

struct Rounds {
  std::unique_ptr<os::EventLoop> loop = std::move(*os::EventLoop::create());
  Ways measured;
  Ways doubtful;
  std::set<int> gone;
  bool answers = true;
  bool done = false;
  std::unique_ptr<PeerRounds> rounds;

  explicit Rounds(std::vector<int> hosts) {
    PeerRounds::Handlers handlers;
    handlers.measure = [this](int host, int peer) {
      if (gone.count(host) + gone.count(peer) > 0) return false;
      measured.emplace_back(host, peer);
      if (answers) loop->post([this, host] { rounds->on_answer(host); });
      return true;
    };
    handlers.doubtful = [this] { return doubtful; };
    handlers.done = [this] {
      done = true;
      rounds.reset();
      loop->stop();
    };
    rounds = std::make_unique<PeerRounds>(*loop, std::move(hosts), std::move(handlers));
  }

  void run() {
    rounds->begin();
    loop->call_after(20s, [this] { loop->stop(); });
    REQUIRE(loop->run());
    CHECK(done);
  }
};

}  // namespace

TEST_CASE("every host measures every other, one at a time") {
  Rounds three({2, 5, 7});
  three.run();
  CHECK(three.measured == Ways{{2, 5}, {5, 7}, {7, 2}, {2, 7}, {5, 2}, {7, 5}});
}

TEST_CASE("links that look bad are measured once more, one after the other") {
  Rounds two({0, 1});
  two.doubtful = {{0, 1}, {1, 0}};
  two.run();
  CHECK(two.measured == Ways{{0, 1}, {1, 0}, {1, 0}, {0, 1}});
}

TEST_CASE("hosts that are gone are passed over") {
  Rounds three({0, 1, 2});
  three.gone = {1};
  three.doubtful = {{1, 2}};
  three.run();
  CHECK(three.measured == Ways{{2, 0}, {0, 2}});
}

TEST_CASE("a host that is lost ends its measurement") {
  Rounds two({0, 1});
  two.answers = false;
  two.loop->call_after(20ms, [&] {
    two.rounds->on_lost(0);
    two.rounds->on_lost(1);
  });
  two.run();
  CHECK(two.measured.size() == 2);
}

TEST_CASE("alone, or without hosts, there is nothing to measure") {
  for (const auto& hosts : {std::vector<int>{}, std::vector<int>{3}}) {
    Rounds few(hosts);
    few.run();
    CHECK(few.measured.empty());
  }
}
