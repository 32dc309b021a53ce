// SPDX-License-Identifier: Apache-2.0
// The launcher's messages to each host, and when a host has everything that it lacked.
#include "launcher/shipping/part_delivery.h"

#include "launcher/protocol/messages.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher;

namespace {

struct Fixture {
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

  explicit Fixture(Sharing sharing) {
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
  Fixture fixture(Sharing::kAlways);
  fixture.delivery->want(0, fixture.parts, 2);
  CHECK(fixture.said() == Lines{"keep n0", "send n0"});
  CHECK(fixture.delivery->is_complete(0));  // its order follows what was sent
  fixture.delivery->want(1, fixture.parts, 2);
  CHECK(fixture.said().empty());
  CHECK_FALSE(fixture.delivery->is_complete(1));
  fixture.report(0, true);
  CHECK(fixture.said() == Lines{"fetch n1"});
  const FetchDelivery& fetch = fixture.fetches[1];
  CHECK(fetch.id == fixture.id);
  CHECK(fetch.size_bytes == 6);
  CHECK(fetch.sources == std::vector<DeliverySource>{{"n0", {"10.0.0.1"}, 1000}});
  CHECK_FALSE(fixture.delivery->is_complete(1));
  fixture.report(1, true);
  CHECK(fixture.said() == Lines{"forget n0", "forget n1"});
  CHECK(fixture.complete[0].sent_bytes == 6);
  CHECK(fixture.complete[0].fetched_bytes == 0);
  CHECK(fixture.complete[1].sent_bytes == 0);
  CHECK(fixture.complete[1].fetched_bytes == 6);
  CHECK(fixture.complete[1].sources == Lines{"n0"});
}

TEST_CASE("what a host cannot fetch, the launcher sends") {
  Fixture fixture(Sharing::kAlways);
  fixture.delivery->want(0, fixture.parts, 2);
  fixture.delivery->want(1, fixture.parts, 2);
  fixture.report(0, true);
  fixture.said();
  fixture.report(1, false, {"Connection refused"});
  CHECK(fixture.said() == Lines{"keep n1", "send n1"});
  CHECK(fixture.complete[1].sent_bytes == 6);
  CHECK(fixture.complete[1].fetched_bytes == 0);
  fixture.report(1, true);
  CHECK(fixture.said() == Lines{"forget n0", "forget n1"});
}

TEST_CASE("no host waits for a host that is lost") {
  Fixture fixture(Sharing::kAlways);
  fixture.delivery->want(0, fixture.parts, 2);
  fixture.delivery->want(1, fixture.parts, 2);
  fixture.said();
  SECTION("while it is sent the part") {
    fixture.delivery->lost(0);
    CHECK(fixture.said() == Lines{"keep n1", "send n1"});
    fixture.report(0, true);  // what it said before
    CHECK(fixture.said().empty());
  }
  SECTION("while it waits") {
    fixture.delivery->lost(1);
    fixture.report(0, true);
    CHECK(fixture.said() == Lines{"forget n0"});
    CHECK(fixture.complete.count(1) == 0);
  }
  SECTION("while it fetches") {
    fixture.report(0, true);
    CHECK(fixture.said() == Lines{"fetch n1"});
    fixture.delivery->lost(1);
    CHECK(fixture.said() == Lines{"forget n0"});
  }
}

TEST_CASE("hosts keep what they have while others may come that lack it") {
  Fixture fixture(Sharing::kAlways);
  fixture.more_may_come = true;
  fixture.delivery->want(0, fixture.parts, 3);
  fixture.report(0, true);
  CHECK(fixture.said() == Lines{"keep n0", "send n0"});
  fixture.delivery->want(1, fixture.parts, 3);
  fixture.report(1, true);
  CHECK(fixture.said() == Lines{"fetch n1"});
  fixture.more_may_come = false;
  fixture.delivery->greeted();
  CHECK(fixture.said() == Lines{"forget n0", "forget n1"});
  // A host that joins the job later.
  fixture.delivery->want(2, fixture.parts, 3);
  CHECK(fixture.said() == Lines{"keep n2", "send n2"});
}

TEST_CASE("few hosts get no messages about sharing") {
  Fixture fixture(Sharing::kAuto);
  for (int host = 0; host < 8; ++host) {
    fixture.delivery->want(host, fixture.parts, 8);
    CHECK(fixture.said() == Lines{"send " + fixture.names[host]});
    CHECK(fixture.delivery->is_complete(host));
  }
}

TEST_CASE("a host is complete when the last of its parts is there") {
  Fixture fixture(Sharing::kAlways);
  fixture.delivery->want(0, fixture.parts, 2);
  fixture.report(0, true);
  fixture.more_may_come = true;
  fixture.delivery->want(1, fixture.parts, 2);
  const std::string first = fixture.id;
  fixture.report(1, true);
  CHECK(fixture.complete.count(1) == 1);
  // Two parts: one that n0 and n1 serve, and a new one, which the launcher sends.
  fixture.parts["other"] = std::make_shared<const std::string>("more frames");
  fixture.delivery->want(2, fixture.parts, 3);
  CHECK_FALSE(fixture.delivery->is_complete(2));
  fixture.delivery->on_report(2, {first, true, 1002, {}});
  CHECK(fixture.delivery->is_complete(2));
  CHECK(fixture.complete[2].sent_bytes == 11);
  CHECK(fixture.complete[2].fetched_bytes == 6);
}

TEST_CASE("what is too large for agents to keep comes from the launcher") {
  Fixture fixture(Sharing::kAlways);
  fixture.parts["part"] = std::make_shared<const std::string>(kMostKeptBytes + 1, 'x');
  for (int host = 0; host < 3; ++host) fixture.delivery->want(host, fixture.parts, 3);
  CHECK(fixture.said() == Lines{"send n0", "send n1", "send n2"});
}
