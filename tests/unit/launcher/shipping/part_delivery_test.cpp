// SPDX-License-Identifier: Apache-2.0
// The launcher's messages to each host, and when a host has everything that it lacked.
#include "launcher/shipping/part_delivery.h"

#include "launcher/protocol/agent_limits.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher;

namespace {

struct Desk {
  std::unique_ptr<os::EventLoop> loop = std::move(*os::EventLoop::create());
  std::vector<std::string> log;
  std::map<int, Supply> complete;
  std::map<int, FetchDelivery> fetches;
  std::string id;
  bool more_may_come = false;
  int settled = 0;
  std::vector<std::string> names{"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"};
  std::unique_ptr<PartDelivery> delivery;
  PartDelivery::Frames parts{{"part", std::make_shared<const std::string>("frames")}};

  explicit Desk(Sharing sharing) {
    PartDelivery::Handlers handlers;
    handlers.send = [this](int host, const auto&) { log.push_back("send " + names[host]); };
    handlers.keep = [this](int host, const KeepDelivery& keep) {
      log.push_back("keep " + names[host]);
      id = keep.id;
    };
    handlers.fetch = [this](int host, const FetchDelivery& fetch) {
      log.push_back("fetch " + names[host]);
      fetches[host] = fetch;
    };
    handlers.forget = [this](int host, const std::string& forgotten) {
      log.push_back("forget " + names[host] + (forgotten.empty() ? "" : " one"));
    };
    handlers.on_settled = [this] { ++settled; };
    handlers.find_source = [this](int source, int) {
      return DeliverySource{names[source], {"10.0.0.1"}, 0};
    };
    handlers.on_complete = [this](int host, const Supply& supply) { complete[host] = supply; };
    handlers.more_may_come = [this] { return more_may_come; };
    handlers.name = [this](int host) -> const std::string& { return names[host]; };
    delivery = std::make_unique<PartDelivery>(*loop, sharing, std::move(handlers));
  }
  std::vector<std::string> said() { return std::exchange(log, {}); }
  void report(int host, bool here, std::vector<std::string> refusals = {}) {
    delivery->on_report(host, {id, here, here ? 1000 + host : 0, std::move(refusals)});
  }
};

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("a host fetches from the one that the launcher has sent to, and all forget at the end") {
  Desk desk(Sharing::kAlways);
  desk.delivery->want(0, desk.parts, 2);
  CHECK(desk.said() == Lines{"keep n0", "send n0"});
  CHECK(desk.delivery->is_complete(0));  // its order follows what was sent
  desk.delivery->want(1, desk.parts, 2);
  CHECK(desk.said().empty());
  CHECK_FALSE(desk.delivery->is_complete(1));
  desk.report(0, true);
  CHECK(desk.said() == Lines{"fetch n1"});
  const FetchDelivery& fetch = desk.fetches[1];
  CHECK(fetch.id == desk.id);
  CHECK(fetch.size_bytes == 6);
  CHECK(fetch.sources == std::vector<DeliverySource>{{"n0", {"10.0.0.1"}, 1000}});
  CHECK_FALSE(desk.delivery->is_complete(1));
  desk.report(1, true);
  CHECK(desk.said() == Lines{"forget n0", "forget n1"});
  CHECK(desk.complete[0].sent_bytes == 6);
  CHECK(desk.complete[0].fetched_bytes == 0);
  CHECK(desk.complete[1].sent_bytes == 0);
  CHECK(desk.complete[1].fetched_bytes == 6);
  CHECK(desk.complete[1].sources == Lines{"n0"});
}

TEST_CASE("what a host cannot fetch, the launcher sends") {
  Desk desk(Sharing::kAlways);
  desk.delivery->want(0, desk.parts, 2);
  desk.delivery->want(1, desk.parts, 2);
  desk.report(0, true);
  desk.said();
  desk.report(1, false, {"Connection refused"});
  CHECK(desk.said() == Lines{"keep n1", "send n1"});
  CHECK(desk.complete[1].sent_bytes == 6);
  CHECK(desk.complete[1].fetched_bytes == 0);
  desk.report(1, true);
  CHECK(desk.said() == Lines{"forget n0", "forget n1"});
}

TEST_CASE("a host that is lost is waited for by nobody") {
  Desk desk(Sharing::kAlways);
  desk.delivery->want(0, desk.parts, 2);
  desk.delivery->want(1, desk.parts, 2);
  desk.said();
  SECTION("while it is sent the part") {
    desk.delivery->lost(0);
    CHECK(desk.said() == Lines{"keep n1", "send n1"});
    desk.report(0, true);  // what it said before
    CHECK(desk.said().empty());
  }
  SECTION("while it waits") {
    desk.delivery->lost(1);
    desk.report(0, true);
    CHECK(desk.said() == Lines{"forget n0"});
    CHECK(desk.complete.count(1) == 0);
  }
  SECTION("while it fetches") {
    desk.report(0, true);
    CHECK(desk.said() == Lines{"fetch n1"});
    desk.delivery->lost(1);
    CHECK(desk.said() == Lines{"forget n0"});
  }
}

TEST_CASE("hosts keep what they have while others may come that lack it") {
  Desk desk(Sharing::kAlways);
  desk.more_may_come = true;
  desk.delivery->want(0, desk.parts, 3);
  desk.report(0, true);
  CHECK(desk.said() == Lines{"keep n0", "send n0"});
  desk.delivery->want(1, desk.parts, 3);
  desk.report(1, true);
  CHECK(desk.said() == Lines{"fetch n1"});
  desk.more_may_come = false;
  desk.delivery->greeted();
  CHECK(desk.said() == Lines{"forget n0", "forget n1"});
  // A host that joins the job later.
  desk.delivery->want(2, desk.parts, 3);
  CHECK(desk.said() == Lines{"keep n2", "send n2"});
}

TEST_CASE("few hosts are told nothing of sharing") {
  Desk desk(Sharing::kAuto);
  for (int host = 0; host < 8; ++host) {
    desk.delivery->want(host, desk.parts, 8);
    CHECK(desk.said() == Lines{"send " + desk.names[host]});
    CHECK(desk.delivery->is_complete(host));
  }
}

TEST_CASE("a host is complete when the last of its parts is there") {
  Desk desk(Sharing::kAlways);
  desk.delivery->want(0, desk.parts, 2);
  desk.report(0, true);
  desk.more_may_come = true;
  desk.delivery->want(1, desk.parts, 2);
  const std::string first = desk.id;
  desk.report(1, true);
  CHECK(desk.complete.count(1) == 1);
  // Two parts: one that n0 and n1 serve, and a new one, which the launcher sends.
  desk.parts["other"] = std::make_shared<const std::string>("more frames");
  desk.delivery->want(2, desk.parts, 3);
  CHECK_FALSE(desk.delivery->is_complete(2));
  desk.delivery->on_report(2, {first, true, 1002, {}});
  CHECK(desk.delivery->is_complete(2));
  CHECK(desk.complete[2].sent_bytes == 11);
  CHECK(desk.complete[2].fetched_bytes == 6);
}

TEST_CASE("what is too large for agents to keep comes from the launcher") {
  Desk desk(Sharing::kAlways);
  desk.parts["part"] = std::make_shared<const std::string>(kMostKeptBytes + 1, 'x');
  for (int host = 0; host < 3; ++host) desk.delivery->want(host, desk.parts, 3);
  CHECK(desk.said() == Lines{"send n0", "send n1", "send n2"});
}
