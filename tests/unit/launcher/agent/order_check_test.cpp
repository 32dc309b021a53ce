// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/order_check.h"

#include "tests/support/catch.h"

using namespace hora::launcher;

namespace {

AgentProgress ready() {
  AgentProgress progress;
  progress.has_order = true;
  return progress;
}

AgentProgress running() {
  AgentProgress progress = ready();
  progress.started = true;
  return progress;
}

}  // namespace

TEST_CASE("message order: deliveries come before the order") {
  for (const LauncherMessage& delivery :
       {LauncherMessage(DeliveryFrame{}), LauncherMessage(KeepDelivery{}),
        LauncherMessage(FetchDelivery{})}) {
    CHECK(!out_of_turn(delivery, {}));
    CHECK(out_of_turn(delivery, ready()) == "a delivery after the order");
    CHECK(out_of_turn(delivery, running()) == "a delivery after the order");
  }
}

TEST_CASE("message order: one folder, one relay, and both before the order") {
  AgentProgress progress;
  CHECK(!out_of_turn(OfferTree{}, progress));
  CHECK(!out_of_turn(OpenRelay{}, progress));
  progress.has_tree = true;
  CHECK(out_of_turn(OfferTree{}, progress) == "a second folder, or one after the order");
  CHECK(!out_of_turn(OpenRelay{}, progress));
  progress.relays = true;
  CHECK(out_of_turn(OpenRelay{}, progress) == "a second relay, or one after the order");
  CHECK(out_of_turn(OfferTree{}, ready()) == "a second folder, or one after the order");
  CHECK(out_of_turn(OpenRelay{}, ready()) == "a second relay, or one after the order");
}

TEST_CASE("message order: probes come one after the other") {
  AgentProgress progress;
  CHECK(!out_of_turn(Probe{}, progress));
  progress.probes = true;
  CHECK(out_of_turn(Probe{}, progress) == "a second probe before the first was answered");
}

TEST_CASE("message order: one order, which no delivery surrounds") {
  AgentProgress progress;
  CHECK(!out_of_turn(HostOrder{}, progress));
  progress.in_delivery = true;
  CHECK(out_of_turn(HostOrder{}, progress) == "an order inside a delivery");
  CHECK(out_of_turn(HostOrder{}, ready()) == "a second order");
  CHECK(out_of_turn(HostOrder{}, running()) == "a second order");
}

TEST_CASE("message order: ranks start once, by an order") {
  CHECK(out_of_turn(StartRanks{}, {}) == "a start without an order");
  CHECK(!out_of_turn(StartRanks{}, ready()));
  CHECK(out_of_turn(StartRanks{}, running()) == "a start without an order");
}

TEST_CASE("message order: what frames on the way may say comes at any time") {
  for (const AgentProgress& progress : {AgentProgress{}, ready(), running()}) {
    CHECK(!out_of_turn(LauncherAlive{}, progress));
    CHECK(!out_of_turn(ForgetDeliveries{}, progress));
    CHECK(!out_of_turn(TerminateRank{}, progress));
    CHECK(!out_of_turn(SignalRanks{}, progress));
    CHECK(!out_of_turn(OutputTaken{}, progress));
    CHECK(!out_of_turn(RankInput{}, progress));
    CHECK(!out_of_turn(RelayedBytes{}, progress));
    CHECK(!out_of_turn(TerminateRanks{}, progress));
  }
}
