// SPDX-License-Identifier: Apache-2.0
// Which hosts are to send, fetch and serve the agent, and the fate of hosts that cannot.
#include "launcher/shipping/agent_delivery.h"

#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher;

namespace {

using Lines = std::vector<std::string>;

struct Desk {
  std::unique_ptr<os::EventLoop> loop = std::move(*os::EventLoop::create());
  Lines log;
  std::map<int, AgentOffer> offers;
  std::vector<std::string> names{"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"};
  std::map<int, std::vector<std::string>> addresses;
  int hosts = 10;
  bool more_may_come = true;
  std::unique_ptr<AgentDelivery> delivery;

  explicit Desk(Sharing sharing,
                std::chrono::milliseconds start_timeout = std::chrono::seconds(60)) {
    AgentDelivery::Handlers handlers;
    handlers.serve = [this](int host, const std::string& token) {
      log.push_back((token.empty() ? "end " : "serve ") + names[host]);
    };
    handlers.addresses = [this](int source) {
      return addresses.count(source) > 0 ? addresses[source] : Lines{"10.0.0.1"};
    };
    handlers.hosts = [this] { return hosts; };
    handlers.more_may_come = [this] { return more_may_come; };
    handlers.name = [this](int host) -> const std::string& { return names[host]; };
    handlers.on_given_up = [this] { log.push_back("given up"); };
    delivery = std::make_unique<AgentDelivery>(*loop, sharing, start_timeout, std::move(handlers));
  }

  Lines said() {
    turn();
    return std::exchange(log, {});
  }
  void turn() {
    loop->post([this] { loop->stop(); });
    REQUIRE(loop->run());
  }
  void run_until_it_speaks() {
    const Deadline deadline = Clock::now() + std::chrono::seconds(30);
    const std::function<void()> look = [&] {
      if (!log.empty() || Clock::now() > deadline) return loop->stop();
      loop->call_after(std::chrono::milliseconds(5), look);
    };
    loop->post(look);
    REQUIRE(loop->run());
  }
  void want(int host, const std::string& machine = "x86_64") {
    delivery->want(host, machine, [this, host](const std::optional<AgentOffer>& offer) {
      if (!offer) {
        log.push_back("send " + names[host]);
      } else if (offer->addresses.empty()) {
        log.push_back("wait " + names[host]);
      } else {
        log.push_back("fetch " + names[host]);
        offers[host] = *offer;
      }
    });
    turn();
  }
  void serves(int host) {
    delivery->greeted(host);
    delivery->serves(host, 1000 + host);
  }
};

}  // namespace

TEST_CASE("hosts fetch the agent from those that have greeted, until all have") {
  Desk desk(Sharing::kAlways);
  desk.hosts = 2;
  desk.want(0);
  desk.want(1);
  desk.want(2);
  CHECK(desk.said() == Lines{"send n0", "wait n1", "wait n2"});
  desk.delivery->greeted(0);
  CHECK(desk.said() == Lines{"serve n0"});
  desk.delivery->serves(0, 4711);
  CHECK(desk.said() == Lines{"fetch n1", "fetch n2"});
  CHECK(desk.offers[1].port == 4711);
  CHECK(desk.offers[1].addresses == Lines{"10.0.0.1"});
  CHECK(desk.offers[1].number != desk.offers[2].number);
  CHECK(desk.offers[1].token == desk.offers[2].token);
  CHECK(desk.offers[1].token.size() == 32);
  desk.delivery->opened(1, desk.offers[1].number);
  desk.delivery->got(1, desk.offers[1].number);
  desk.delivery->got(2, desk.offers[2].number);
  CHECK(desk.said().empty());
  desk.delivery->greeted(1);
  CHECK(desk.said() == Lines{"serve n1"});
  desk.more_may_come = false;
  desk.delivery->greeted(2);
  CHECK(desk.said() == Lines{"end n0", "end n1"});
  // A host that joins the job later.
  desk.want(3);
  CHECK(desk.said() == Lines{"send n3"});
}

TEST_CASE("few hosts are not asked to share") {
  Desk desk(Sharing::kAuto);
  CHECK_FALSE(desk.delivery->shares(8));
  CHECK(desk.delivery->shares(9));
  CHECK_FALSE(Desk(Sharing::kNever).delivery->shares(1'000));
  CHECK(Desk(Sharing::kAlways).delivery->shares(2));
  desk.hosts = 8;
  desk.want(0);
  desk.want(1);
  desk.delivery->greeted(0);
  CHECK(desk.said() == Lines{"send n0", "send n1"});
}

TEST_CASE("a source serves hosts of its own processor only") {
  Desk desk(Sharing::kAlways);
  desk.hosts = 2;
  desk.want(0, "x86_64");
  desk.want(1, "aarch64");
  CHECK(desk.said() == Lines{"send n0", "send n1"});
  desk.serves(0);
  desk.want(2, "aarch64");
  CHECK(desk.said() == Lines{"serve n0", "wait n2"});
  desk.serves(1);
  CHECK(desk.said() == Lines{"serve n1", "fetch n2"});
  CHECK(desk.offers[2].port == 1001);
}

TEST_CASE("a host that could not fetch it tries the other source, then others, then the launcher") {
  Desk desk(Sharing::kAlways);
  desk.hosts = 16;
  for (int host = 0; host < 4; ++host) desk.want(host);
  for (int host = 0; host < 4; ++host) desk.serves(host);
  desk.said();
  desk.want(4);
  CHECK(desk.said() == Lines{"fetch n4"});
  std::set<int> ports;
  for (int i = 0; i < 4; ++i) {
    ports.insert(desk.offers[4].port);
    desk.delivery->missed(4, desk.offers[4].number, "it broke off");
    CHECK(desk.said() == Lines{i < 3 ? "fetch n4" : "send n4"});
  }
  CHECK(ports.size() == 4);
  // What it says of an offer that is over counts no more.
  desk.delivery->missed(4, desk.offers[4].number, "it broke off");
  desk.delivery->got(4, desk.offers[4].number);
  CHECK(desk.said().empty());
}

TEST_CASE("where no host reaches another, the launcher sends, and the parts are told") {
  Desk desk(Sharing::kAlways);
  desk.hosts = 2;
  for (int host = 0; host < 5; ++host) desk.want(host);
  desk.serves(0);
  CHECK(desk.said() == Lines{"send n0", "wait n1", "wait n2", "wait n3", "wait n4", "serve n0",
                             "fetch n1", "fetch n2"});
  for (int host = 1; host < 3; ++host) {
    desk.delivery->missed(host, desk.offers[host].number, "it could not reach it");
  }
  // Its only source serves no more; those that were sent it may.
  CHECK(desk.said() == Lines{"send n1", "send n2"});
  desk.serves(1);
  CHECK(desk.said() == Lines{"serve n1", "fetch n3", "fetch n4"});
  desk.delivery->missed(3, desk.offers[3].number, "it could not reach it");
  const Lines said = desk.said();
  CHECK(said == Lines{"send n3", "given up"});
  desk.want(5);
  CHECK(desk.said() == Lines{"send n5"});
}

TEST_CASE("a host without the programs is sent it, whether it waits or fetches") {
  Desk desk(Sharing::kAlways);
  desk.hosts = 2;
  desk.want(0);
  desk.want(1);
  desk.said();
  SECTION("while it waits") {
    desk.delivery->missed(1, 0, "no tools");
    CHECK(desk.said() == Lines{"send n1"});
    desk.delivery->missed(1, 0, "no tools");
    CHECK(desk.said().empty());
  }
  SECTION("while it fetches") {
    desk.serves(0);
    CHECK(desk.said() == Lines{"serve n0", "fetch n1"});
    desk.delivery->missed(1, 0, "no tools");
    CHECK(desk.said() == Lines{"send n1"});
  }
}

TEST_CASE("a host that asks again is sent it") {
  Desk desk(Sharing::kAlways);
  desk.hosts = 2;
  desk.want(0);
  desk.want(1);
  desk.serves(0);
  desk.said();
  SECTION("while it fetches") {}
  SECTION("after it has fetched it") { desk.delivery->got(1, desk.offers[1].number); }
  desk.want(1);
  CHECK(desk.said() == Lines{"send n1"});
}

TEST_CASE("who has little time for its start is sent it early") {
  Desk desk(Sharing::kAlways, std::chrono::milliseconds(300));
  desk.hosts = 2;
  desk.want(0);
  desk.want(1);
  const bool fetches = GENERATE(false, true);
  if (fetches) {
    desk.serves(0);
    desk.delivery->opened(1, desk.offers[1].number);
  }
  desk.said();
  desk.run_until_it_speaks();
  CHECK(desk.said() == Lines{"send n1"});
}

TEST_CASE("a silent source costs a deadline, and no more") {
  Desk desk(Sharing::kAlways);
  desk.hosts = 2;
  desk.want(0);
  desk.want(1);
  desk.serves(0);
  CHECK(desk.said() == Lines{"send n0", "wait n1", "serve n0", "fetch n1"});
  const auto patience = GENERATE(std::chrono::seconds(2), std::chrono::seconds(5));
  if (patience == std::chrono::seconds(5)) desk.delivery->opened(1, desk.offers[1].number);
  const auto began = Clock::now();
  desk.run_until_it_speaks();
  CHECK(desk.said() == Lines{"send n1"});
  CHECK(Clock::now() - began >= patience);
}

TEST_CASE("hosts that are gone are waited for by nobody") {
  Desk desk(Sharing::kAlways);
  desk.hosts = 2;
  desk.want(0);
  desk.want(1);
  desk.said();
  SECTION("while it is sent the agent") {
    desk.delivery->lost(0);
    CHECK(desk.said() == Lines{"send n1"});
    desk.delivery->serves(0, 1);  // what it said before
    CHECK(desk.said().empty());
  }
  SECTION("while it serves") {
    desk.serves(0);
    CHECK(desk.said() == Lines{"serve n0", "fetch n1"});
    desk.delivery->lost(0);
    desk.delivery->missed(1, desk.offers[1].number, "it broke off");
    CHECK(desk.said() == Lines{"send n1"});
  }
  SECTION("while it waits") {
    desk.delivery->lost(1);
    desk.serves(0);
    CHECK(desk.said() == Lines{"serve n0"});
  }
  SECTION("while it fetches") {
    desk.serves(0);
    desk.delivery->lost(1);
    desk.want(2);
    CHECK(desk.said() == Lines{"serve n0", "fetch n1", "fetch n2"});
  }
}

TEST_CASE("a source without an address, or without a port, serves nobody") {
  Desk desk(Sharing::kAlways);
  desk.hosts = 2;
  desk.want(0);
  desk.want(1);
  desk.said();
  SECTION("no address") {
    desk.addresses[0] = {};
    desk.serves(0);
    CHECK(desk.said() == Lines{"serve n0", "send n1"});
  }
  SECTION("no port") {
    desk.delivery->greeted(0);
    desk.delivery->serves(0, 0);
    CHECK(desk.said() == Lines{"serve n0", "send n1"});
  }
}

TEST_CASE("nobody is answered behind the end") {
  Desk desk(Sharing::kAlways);
  desk.delivery->want(0, "x86_64",
                      [&desk](const std::optional<AgentOffer>&) { desk.log.push_back("answer"); });
  desk.delivery->close();
  CHECK(desk.said().empty());
}
