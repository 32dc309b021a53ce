// SPDX-License-Identifier: Apache-2.0
#include "launcher/dial/dial_roster.h"

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

TEST_CASE("Without a list of hosts, every host is let in until there are enough slots") {
  DialRoster roster({}, 4);
  CHECK(roster.standing() == "0 of 4 slots");
  CHECK(roster.join("b", "10.0.0.2", 2).name == "b");
  CHECK_FALSE(roster.complete());
  CHECK(roster.standing() == "2 of 4 slots (b:2)");
  CHECK(roster.join("a", "10.0.0.1", 3).name == "a");
  CHECK(roster.complete());
  CHECK(format_host_list(roster.hosts()) == "b:2,a:3");
  CHECK(roster.join("c", "10.0.0.3", 1).refusal ==
        "the job runs with all of its hosts; one that is started again cannot join it");
}

TEST_CASE("Machines of one name are distinguished by their addresses") {
  DialRoster roster({}, 8);
  CHECK(roster.join("ubuntu", "10.0.0.1", 1).name == "ubuntu");
  CHECK(roster.join("ubuntu", "10.0.0.2", 1).name == "10.0.0.2");
  CHECK(roster.join("ubuntu", "10.0.0.1", 1).refusal == "ubuntu has joined already");
  CHECK(roster.join("ubuntu", "10.0.0.2", 1).refusal == "10.0.0.2 has joined already");
}

TEST_CASE("The hosts of -H are waited for by name or address, in their order") {
  DialRoster roster({Host{"a", "", 4}, Host{"10.0.0.2", "", std::nullopt}}, 0);
  CHECK(roster.standing() == "0 of 2 hosts; a, 10.0.0.2 are missing");
  CHECK(roster.join("c", "10.0.0.3", 1).refusal ==
        "neither c nor 10.0.0.3 is one of the job's hosts");
  CHECK(roster.join("b", "10.0.0.2", 2).name == "10.0.0.2");
  CHECK(roster.standing() == "1 of 2 hosts; a is missing");
  CHECK(roster.join("a", "10.0.0.1", 1).name == "a");
  CHECK(roster.complete());
  CHECK(format_host_list(roster.hosts()) == "a:4,10.0.0.2:2");
}

TEST_CASE("Who leaves is waited for again") {
  DialRoster roster({}, 2);
  CHECK(roster.join("a", "10.0.0.1", 1).name == "a");
  roster.leave("a");
  CHECK(roster.standing() == "0 of 2 slots");
  CHECK(roster.join("a", "10.0.0.1", 2).name == "a");
  CHECK(roster.complete());
}

}  // namespace
}  // namespace hora::launcher
