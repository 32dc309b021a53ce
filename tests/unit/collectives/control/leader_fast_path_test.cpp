// SPDX-License-Identifier: Apache-2.0
#include "collectives/control/leader_fast_path.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <set>

#include "tests/support/catch.h"

using namespace hora::collectives;

namespace {

// A sum, and which hosts are in it.
class Sum final : public LeaderExchange::Payload {
 public:
  explicit Sum(int host) : host_(host) {}
  void bring() override { parts_ = {host_}; }
  void finish() override { finished = true; }
  bool in_shares() const override { return false; }
  void give(const LeaderStep& step, std::string& message) override {
    // What the plan says is what there is.
    CHECK(std::set<int>(step.gives.begin(), step.gives.end()) == parts_);
    for (const int part : parts_) message += static_cast<char>('A' + part);
  }
  bool take(const LeaderStep& step, std::string_view bytes) override {
    if (bytes.size() != step.gets.size()) return false;
    for (const char part : bytes) {
      const bool fresh = parts_.insert(part - 'A').second;
      if (!fresh && !step.result) return false;
    }
    return true;
  }
  std::size_t size() const { return parts_.size(); }
  bool finished = false;

 private:
  int host_;
  std::set<int> parts_;
};

// An element for each host, so that each ends up with one of them; its bits show which were added.
class Shares final : public LeaderExchange::Payload {
 public:
  Shares(int host, int hosts) : host_(host), elements(static_cast<std::size_t>(hosts)) {}
  void bring() override {
    std::fill(elements.begin(), elements.end(), static_cast<char>(1 << host_));
  }
  void finish() override { finished = true; }
  bool in_shares() const override { return true; }
  void give(const LeaderStep& step, std::string& message) override {
    for (const std::size_t each : kept(step.result ? host_ : step.peer, step)) {
      message += elements[each];
    }
  }
  bool take(const LeaderStep& step, std::string_view bytes) override {
    const auto places = kept(step.result ? step.peer : host_, step);
    if (bytes.size() != places.size()) return false;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      char& mine = elements[places[i]];
      if (!step.result && (mine & bytes[i]) != 0) return false;  // added twice
      mine = static_cast<char>(step.result ? bytes[i] : mine | bytes[i]);
    }
    return true;
  }

 private:
  // The elements whose number has the host's lowest bits.
  std::vector<std::size_t> kept(int host, const LeaderStep& step) const {
    std::vector<std::size_t> places;
    const std::size_t bits = 2 * step.gives.size() - 1;
    for (std::size_t each = 0; each < elements.size(); ++each) {
      if ((each & bits) == (static_cast<std::size_t>(host) & bits)) places.push_back(each);
    }
    return places;
  }

  int host_;

 public:
  std::vector<char> elements;
  bool finished = false;
};

// The leaders of that many hosts; messages are delivered when the test wants it.
struct Leaders {
  explicit Leaders(int hosts) {
    for (int host = 0; host < hosts; ++host) {
      all.push_back(std::make_unique<LeaderExchange>(
          leader_steps(host, hosts), [this, host](int to, std::string_view message) {
            flying.push_back({host, to, std::string(message)});
          }));
    }
  }
  // Any message, but of two from one host to another the older one first.
  void deliver(std::mt19937& random) {
    const std::size_t any = random() % flying.size();
    const auto first = std::find_if(flying.begin(), flying.end(), [&](const Message& each) {
      return each.from == flying[any].from && each.to == flying[any].to;
    });
    all[static_cast<std::size_t>(first->to)]->arrived(first->from, first->text);
    flying.erase(first);
  }

  struct Message {
    int from;
    int to;
    std::string text;
  };
  std::vector<std::unique_ptr<LeaderExchange>> all;
  std::vector<Message> flying;
};

}  // namespace

TEST_CASE("leaders: the first rank of each host, in the order of the hosts") {
  const LeaderPlan plan = plan_leaders({0, 1, 1, 0, 2}, 3);
  CHECK(plan.members == std::vector<std::vector<std::int32_t>>{{0, 3}, {1, 2}, {4}});
  CHECK(plan.host == 0);
  CHECK(plan.place == 1);
  CHECK_FALSE(plan.leads());
  CHECK(plan.most_members() == 2);
  CHECK(plan.leader_of(1) == 1);
  CHECK(plan_leaders({0, 1, 1, 0, 2}, 4).leads());
  CHECK(plan_leaders({0, 1}, 1).peers == std::vector<int>{0});
}

TEST_CASE("leaders: a peer that a host sends to waits for that host exactly once") {
  for (int hosts = 1; hosts <= 17; ++hosts) {
    std::size_t most = 0;
    for (int host = 0; host < hosts; ++host) {
      for (const int peer : leader_peers(host, hosts)) {
        const auto back = leader_peers(peer, hosts);
        CHECK(std::count(back.begin(), back.end(), host) == 1);
      }
      most = std::max(most, leader_steps(host, hosts).size());
    }
    std::size_t doublings = 0;
    while (1 << (doublings + 1) <= hosts) ++doublings;
    CHECK(most == doublings + ((hosts & (hosts - 1)) == 0 ? 0U : 2U));
  }
}

TEST_CASE("leaders: all learn what all brought, whenever the messages come") {
  std::mt19937 random(3);
  for (int hosts = 1; hosts <= 9; ++hosts) {
    Leaders leaders(hosts);
    // What each has brought in this turn, one turn ahead of the slowest at most.
    std::vector<std::uint64_t> turns(static_cast<std::size_t>(hosts), 0);
    std::vector<std::unique_ptr<Sum>> sums(static_cast<std::size_t>(hosts));
    const auto number = [](std::uint64_t turn, int host) -> std::uint64_t {
      if (turn % 3 == 0 && host == static_cast<int>(turn) % 4) return 0;  // where there is one
      return turn % 5 == 0 && host == 0 ? turn + 100 : turn;
    };
    for (int tries = 0; tries < 4000; ++tries) {
      const int host = static_cast<int>(random() % static_cast<unsigned>(hosts));
      const auto at = static_cast<std::size_t>(host);
      LeaderExchange& leader = *leaders.all[at];
      if (!leader.running() && turns[at] < 40) {
        const std::uint64_t turn = ++turns[at];
        sums[at] = std::make_unique<Sum>(host);
        leader.begin(turn, number(turn, host));
      }
      if (leader.running() && leader.can_go_on()) {
        REQUIRE(leader.go_on(sums[at].get()));
        if (!leader.running()) {
          std::set<std::uint64_t> brought;
          for (int each = 0; each < hosts; ++each) brought.insert(number(turns[at], each));
          const std::uint64_t common = brought.size() == 1 ? *brought.begin() : 0;
          REQUIRE(leader.number() == common);
          REQUIRE(sums[at]->finished == (common != 0));
          if (common != 0) REQUIRE(sums[at]->size() == static_cast<std::size_t>(hosts));
        }
      }
      if (!leaders.flying.empty() && random() % 2 == 0) leaders.deliver(random);
    }
    CHECK(*std::min_element(turns.begin(), turns.end()) == 40);
  }
}

TEST_CASE("leaders: shares of the result come back to all") {
  std::mt19937 random(5);
  for (const int hosts : {2, 4, 8}) {
    Leaders leaders(hosts);
    std::vector<std::unique_ptr<Shares>> shares(static_cast<std::size_t>(hosts));
    for (std::uint64_t turn = 1; turn <= 60; ++turn) {
      // Every third time, one has brought something else: no host may wait for shares.
      const auto number = [&](int host) -> std::uint64_t {
        return turn % 3 == 0 && host == static_cast<int>(turn) % hosts ? turn % 2 : turn + 1;
      };
      for (int host = 0; host < hosts; ++host) {
        shares[static_cast<std::size_t>(host)] = std::make_unique<Shares>(host, hosts);
        leaders.all[static_cast<std::size_t>(host)]->begin(turn, number(host));
      }
      const auto running = [](const auto& each) { return each->running(); };
      while (std::any_of(leaders.all.begin(), leaders.all.end(), running)) {
        for (int host = 0; host < hosts; ++host) {
          LeaderExchange& leader = *leaders.all[static_cast<std::size_t>(host)];
          if (!leader.running() || !leader.can_go_on() || random() % 2 == 0) continue;
          REQUIRE(leader.go_on(shares[static_cast<std::size_t>(host)].get()));
        }
        if (!leaders.flying.empty()) leaders.deliver(random);
      }
      REQUIRE(leaders.flying.empty());
      for (int host = 0; host < hosts; ++host) {
        const Shares& its = *shares[static_cast<std::size_t>(host)];
        CHECK(leaders.all[static_cast<std::size_t>(host)]->number() ==
              (turn % 3 == 0 ? 0 : turn + 1));
        CHECK(its.finished == (turn % 3 != 0));
        if (!its.finished) continue;
        const char all = static_cast<char>((1 << hosts) - 1);
        CHECK(std::count(its.elements.begin(), its.elements.end(), all) == hosts);
      }
    }
  }
}

TEST_CASE("leaders: what makes no sense is seen") {
  const auto after = [](const std::string& message, std::uint64_t number) {
    LeaderExchange exchange(leader_steps(0, 2), [](int, std::string_view) {});
    Sum sum(0);
    exchange.begin(7, number);
    CHECK(exchange.go_on(&sum));
    exchange.arrived(1, message);
    return exchange.go_on(&sum);
  };
  const auto message = [](std::uint64_t turn, std::uint64_t number, const std::string& load) {
    const std::uint64_t head[2] = {turn, number};
    return std::string(reinterpret_cast<const char*>(head), sizeof head) + load;
  };
  CHECK(after(message(7, 9, "B"), 9));
  CHECK(after(message(7, 8, "anything"), 9));  // another number: its load is of no interest
  CHECK_FALSE(after(message(7, 9, "BC"), 9));
  CHECK_FALSE(after(message(7, 9, ""), 9));
  CHECK_FALSE(after(message(6, 9, "B"), 9));
  CHECK_FALSE(after("short", 9));
}

namespace {

// The ranks of one of two hosts.
struct Host {
  explicit Host(int ranks) : memory(nullptr, &std::free), rung(static_cast<std::size_t>(ranks)) {
    std::vector<std::int32_t> hosts(static_cast<std::size_t>(ranks), 0);
    hosts.push_back(1);
    const std::size_t bytes =
        (LeaderFastPath::memory_bytes(plan_leaders(hosts, 0)) + 127) / 128 * 128;
    memory.reset(static_cast<char*>(std::aligned_alloc(128, bytes)));
    std::memset(memory.get(), 0, bytes);
    for (int rank = 0; rank < ranks; ++rank) {
      fast_paths.push_back(std::make_unique<LeaderFastPath>(
          plan_leaders(hosts, rank), memory.get(),
          [this](int place) { ++rung[static_cast<std::size_t>(place)]; },
          [this](int, std::string_view message) { sent.emplace_back(message); }));
      fast_paths.back()->set_attentive(true);
    }
  }
  LeaderFastPath& operator[](int rank) { return *fast_paths[static_cast<std::size_t>(rank)]; }
  // As the other host would say it.
  static std::string word(std::uint64_t turn, std::uint64_t number) {
    const std::uint64_t head[2] = {turn, number};
    return {reinterpret_cast<const char*>(head), sizeof head};
  }

  std::unique_ptr<char, decltype(&std::free)> memory;
  std::vector<int> rung;
  std::vector<std::unique_ptr<LeaderFastPath>> fast_paths;
  std::vector<std::string> sent;
};

}  // namespace

TEST_CASE(
    "leader fast path: the leader is woken when its host is complete, the host when all are") {
  Host host(3);
  host[1].post(0);
  host[0].post(0);
  CHECK_FALSE(host[0].can_go_on());
  CHECK(host.rung == std::vector<int>{0, 0, 0});
  host[2].post(0);
  CHECK(host.rung == std::vector<int>{1, 0, 0});
  CHECK_FALSE(host[1].has_work());
  REQUIRE(host[0].can_go_on());
  REQUIRE(host[0].go_on(nullptr));
  CHECK(host.sent == std::vector<std::string>{Host::word(1, 0)});
  CHECK_FALSE(host[0].decided());
  host[0].arrived(1, Host::word(1, 5));
  REQUIRE(host[0].has_work());
  REQUIRE(host[0].go_on(nullptr));
  CHECK(host.rung == std::vector<int>{1, 1, 1});
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(host[rank].has_work());
    CHECK(host[rank].decided());
    CHECK(host[rank].common() == FastPath::kNothing);
    host[rank].next();
    CHECK_FALSE(host[rank].has_work());
  }
}

TEST_CASE("leader fast path: a rank that listens learns that another host waits, before or after") {
  Host host(3);
  host[1].listen(true);
  CHECK_FALSE(host[1].called_upon());
  host[0].arrived(1, Host::word(1, 5));
  CHECK(host.rung == std::vector<int>{0, 1, 0});
  CHECK(host[1].called_upon());
  CHECK_FALSE(host[2].called_upon());
  host[2].listen(true);
  CHECK(host[2].called_upon());
  host[2].post(FastPath::kNothing);
  CHECK_FALSE(host[2].called_upon());
}

TEST_CASE("leader fast path: rank 0 calls, and learns which ranks have posted") {
  Host host(2);
  CHECK_FALSE(host[0].has_posted(2));
  CHECK_FALSE(host[0].has_posted(1));
  host[0].note_posted(2, 1);
  CHECK(host[0].has_posted(2));
  host[1].post(4);
  CHECK(host[0].has_posted(1));
  host[0].call(1);
  CHECK(host[0].called_upon());
  host[0].post(FastPath::kNothing);
  REQUIRE(host[0].go_on(nullptr));
  host[0].arrived(1, Host::word(1, 4));
  REQUIRE(host[0].go_on(nullptr));
  host[0].next();
  CHECK_FALSE(host[0].called_upon());  // that was of the turn before
  CHECK_FALSE(host[0].has_posted(2));
}

TEST_CASE("leader fast path: a connection that has ended is work to do") {
  Host host(1);
  CHECK_FALSE(host[0].has_work());
  CHECK_FALSE(host[0].lost());
  host[0].lost_leader(0, "gone");
  host[0].fail("something else");
  CHECK(host[0].has_work());
  CHECK(host[0].failure() == "the connection to rank 0, which leads its host, has ended: gone");
  REQUIRE(host[0].lost());
  CHECK(host[0].lost()->rank == 0);
  host[0].set_attentive(false);
  CHECK_FALSE(host[0].has_work());
}
