// SPDX-License-Identifier: Apache-2.0
// Whole deliveries, played with numbered hosts: which host sends to which, how often, and the
// result when hosts fail.
#include "launcher/shipping/share_plan.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "tests/support/catch.h"

using namespace hora::launcher;

namespace {

// Plays all that is under way round by round: what begins in one round ends in the next.
struct Play {
  explicit Play(Sharing sharing) : plan(sharing) {}

  SharePlan plan;
  SharePlan::Steps under_way;
  std::set<int> have;
  int sends = 0;
  int rounds = 0;
  int most_peers = 0;  // of one source in one round
  // Whether `host` gets it from `source`.
  std::function<bool(int host, int source)> reaches = [](int, int) { return true; };

  void take(const SharePlan::Steps& steps) {
    under_way.insert(under_way.end(), steps.begin(), steps.end());
  }

  void want_all(int hosts) {
    for (int host = 0; host < hosts; ++host) take(plan.want(host, hosts));
  }

  void round() {
    ++rounds;
    std::map<int, int> peers;
    for (const SharePlan::Step& step : std::exchange(under_way, {})) {
      if (step.sources.empty()) {
        ++sends;
        CHECK(have.insert(step.host).second);
        take(plan.ready(step.host, plan.shares()));
        continue;
      }
      most_peers = std::max(most_peers, ++peers[step.sources.front()]);
      const auto source = std::find_if(step.sources.begin(), step.sources.end(), [&](int each) {
        CHECK(have.count(each) == 1);
        return reaches(step.host, each);
      });
      for (auto each = step.sources.begin(); each != source; ++each) plan.refuse(*each);
      if (source == step.sources.end()) {
        take(plan.failed(step.host));
        continue;
      }
      CHECK(have.insert(step.host).second);
      take(plan.ready(step.host, true));
    }
  }

  void run() {
    while (!under_way.empty()) round();
    CHECK(plan.is_settled());
  }
};

int log2_of(int hosts) { return static_cast<int>(std::ceil(std::log2(hosts))); }

}  // namespace

TEST_CASE("the launcher sends to log2 of the hosts, and they to all others") {
  for (const int hosts : {9, 10, 16, 17, 64, 100, 1000, 10'000}) {
    Play play(Sharing::kAuto);
    play.want_all(hosts);
    play.run();
    INFO(hosts << " hosts");
    CHECK(play.have.size() == static_cast<std::size_t>(hosts));
    CHECK(play.sends <= log2_of(hosts));
    CHECK(play.rounds <= log2_of(hosts) + 1);
    CHECK(play.most_peers <= 2);
  }
}

TEST_CASE("the launcher sends to all hosts if they are few, or if sharing is off") {
  for (int hosts = 1; hosts < kLeastSharingHosts; ++hosts) {
    Play play(Sharing::kAuto);
    play.want_all(hosts);
    play.run();
    CHECK(play.sends == hosts);
    CHECK_FALSE(play.plan.shares());
  }
  Play never(Sharing::kNever);
  never.want_all(1000);
  never.run();
  CHECK(never.sends == 1000);
  CHECK(never.rounds == 1);
}

TEST_CASE("two hosts share if sharing is on") {
  Play play(Sharing::kAlways);
  play.want_all(2);
  play.run();
  CHECK(play.sends == 1);
  CHECK(play.have.size() == 2);
}

TEST_CASE("hosts that come one after the other find those that have it") {
  Play play(Sharing::kAuto);
  for (int host = 0; host < 64; ++host) {
    play.take(play.plan.want(host, 64));
    play.run();
  }
  CHECK(play.sends == 1);
}

TEST_CASE("where no host reaches another, the launcher soon sends to all at once") {
  Play play(Sharing::kAuto);
  play.reaches = [](int, int) { return false; };
  play.want_all(64);
  play.run();
  CHECK(play.sends == 64);
  CHECK(play.have.size() == 64);
  CHECK_FALSE(play.plan.shares());
  CHECK(play.rounds <= 4);
}

TEST_CASE("a host that reaches no other costs one more send") {
  Play play(Sharing::kAuto);
  play.reaches = [](int host, int) { return host != 40; };
  play.want_all(64);
  play.run();
  CHECK(play.have.size() == 64);
  CHECK(play.sends <= log2_of(64) + 1);
  CHECK(play.plan.shares());
}

TEST_CASE("who has bad luck with its sources tries others before the launcher") {
  SharePlan plan(Sharing::kAlways);
  for (int host = 0; host < 4; ++host) CHECK(plan.want(host, 16).front().sources.empty());
  for (int host = 0; host < 4; ++host) CHECK(plan.ready(host, true).empty());
  REQUIRE(plan.want(4, 16) == SharePlan::Steps{{4, {0, 1}}});
  plan.refuse(0);
  plan.refuse(1);
  CHECK(plan.failed(4) == SharePlan::Steps{{4, {2, 3}}});
  plan.refuse(2);
  plan.refuse(3);
  CHECK(plan.failed(4) == SharePlan::Steps{{4, {}}});
  plan.ready(4, true);
  CHECK(plan.is_settled());
}

TEST_CASE("a source that no host reaches is not asked for ever") {
  Play play(Sharing::kAuto);
  int asked = 0;
  play.reaches = [&](int, int source) {
    asked += source == 0;
    return source != 0;
  };
  play.want_all(200);
  play.run();
  CHECK(play.have.size() == 200);
  CHECK(asked <= 4);
  CHECK(play.sends <= log2_of(200) + 2);
}

TEST_CASE("sources that are lost are replaced") {
  Play play(Sharing::kAuto);
  play.want_all(64);
  // All hosts that the launcher has sent to are gone before they have served any other.
  std::set<int> gone;
  for (const SharePlan::Step& step : play.under_way) gone.insert(step.host);
  play.under_way.clear();
  for (const int host : gone) play.take(play.plan.lost(host));
  play.run();
  CHECK(play.have.size() + gone.size() == 64);
}

TEST_CASE("a host that is lost while it waits, fetches or serves does not delay the others") {
  std::mt19937 random(4711);
  for (int game = 0; game < 200; ++game) {
    const int hosts = 9 + static_cast<int>(random() % 60);
    Play play(Sharing::kAuto);
    std::set<int> gone;
    play.reaches = [&](int, int source) { return gone.count(source) == 0; };
    play.want_all(hosts);
    while (!play.under_way.empty()) {
      play.round();
      const int host = static_cast<int>(random() % static_cast<unsigned>(hosts));
      if (random() % 2 == 0 || !gone.insert(host).second) continue;
      play.under_way.erase(std::remove_if(play.under_way.begin(), play.under_way.end(),
                                          [host](const auto& step) { return step.host == host; }),
                           play.under_way.end());
      // What it had before counts; a source that was offered may be gone when it is asked.
      play.take(play.plan.lost(host));
    }
    CHECK(play.plan.is_settled());
    std::set<int> either = play.have;
    either.insert(gone.begin(), gone.end());
    CHECK(either.size() == static_cast<std::size_t>(hosts));
  }
}

TEST_CASE("who has waited for too long is served by the launcher") {
  SharePlan plan(Sharing::kAlways);
  CHECK(plan.want(0, 16).size() == 1);
  for (int host = 1; host < 4; ++host) CHECK(plan.want(host, 16).size() == 1);
  CHECK(plan.want(4, 16).empty());
  CHECK(plan.any_waits());
  const auto steps = plan.give_up();
  REQUIRE(steps.size() == 1);
  CHECK(steps[0] == SharePlan::Step{4, {}});
  CHECK_FALSE(plan.shares());
}

TEST_CASE("parts that no host serves any more come from the launcher") {
  Play play(Sharing::kAlways);
  play.want_all(16);
  play.run();
  CHECK_FALSE(play.plan.want(16, 17).front().sources.empty());
  play.plan.forget();
  const auto steps = play.plan.want(17, 18);
  REQUIRE(steps.size() == 1);
  CHECK(steps[0].sources.empty());
}

TEST_CASE("reports that are not expected change nothing") {
  SharePlan plan(Sharing::kAlways);
  CHECK(plan.ready(7, true).empty());
  CHECK(plan.failed(7).empty());
  CHECK(plan.lost(7).empty());
  plan.refuse(7);
  CHECK(plan.is_settled());
}
