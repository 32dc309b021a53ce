// SPDX-License-Identifier: Apache-2.0
#include "launcher/plan/core_list.h"

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

// Two sockets of two cores with two hardware threads each, numbered as Linux numbers them: CPU 0
// and 4 share the first core.
std::vector<CpuPlace> machine() {
  std::vector<CpuPlace> places;
  for (int cpu = 0; cpu < 8; ++cpu) {
    CpuPlace place;
    place.cpu = cpu;
    place.core = cpu % 4;
    place.package = cpu % 4 / 2;
    places.push_back(place);
  }
  return places;
}

std::vector<CoreRange> parsed(std::string_view text) {
  const auto cores = parse_core_list(text, {"ranks", text, 1}, 0);
  if (!cores) FAIL(cores.error().message);
  return *cores;
}

std::vector<int> cpus(std::string_view text) {
  const auto found = cpus_of(parsed(text), machine());
  if (!found) FAIL(found.error().message);
  return *found;
}

TEST_CASE("Cores of a rankfile") {
  CHECK(cpus("0") == std::vector<int>{0, 4});
  CHECK(cpus("1-2") == std::vector<int>{1, 2, 5, 6});
  CHECK(cpus("1:0") == std::vector<int>{2, 6});
  CHECK(cpus("1:0,1") == std::vector<int>{2, 3, 6, 7});
  CHECK(cpus("1:*") == cpus("1:0-1"));
  CHECK(cpus("*").size() == 8);
  // Behind a ';' cores are counted over all sockets again.
  CHECK(cpus("1:1;0") == std::vector<int>{0, 3, 4, 7});
  CHECK(cpus("0:0,1:0") == std::vector<int>{0, 2, 4, 6});
  CHECK(cpus("0,0-1") == cpus("0-1"));
  CHECK(parsed("0:1-2;*") == std::vector<CoreRange>{{0, 1, 2}, {{}, 0, {}}});
}

TEST_CASE("Cores of a rankfile: counted among those that the job may use") {
  auto some = machine();
  some.erase(some.begin());  // CPU 0; its core has CPU 4 left
  some.erase(some.begin());  // CPU 1
  CHECK(cpus_of(parsed("0-1"), some).value() == std::vector<int>{4, 5});
  CHECK(cpus_of(parsed("0:2"), some).error().message ==
        "core 2 is not there; this job may use 2 cores of socket 0, from 0");
  CHECK(cpus_of(parsed("4"), some).error().message ==
        "core 4 is not there; this job may use 4 cores, from 0");
  CHECK(cpus_of(parsed("2:*"), some).error().message ==
        "socket 2 is not there; this job may use 2 sockets, from 0");
}

TEST_CASE("Cores of a rankfile: mistakes") {
  for (const std::string_view text : {"", "x", "1:", ":1", "3-1", "1,", ",1", ";", "-1", "0:1:2",
                                      "1.5", "9999999", "0x1", "1 "}) {
    INFO(text);
    const auto cores = parse_core_list(text, {"ranks", text, 7}, 0);
    REQUIRE_FALSE(cores);
    CHECK(cores.error().message.find("ranks:7:") == 0);
    CHECK(cores.error().message.find("expected cores such as 0-3") != std::string::npos);
  }
}

}  // namespace
}  // namespace hora::launcher
