// SPDX-License-Identifier: Apache-2.0
#include "launcher/elastic/discovered_hosts.h"

#include <string>

#include "tests/support/catch.h"

using namespace hora::launcher;
using elastic::parse_discovered_hosts;

namespace {

std::string listed(std::string_view output, int slots = 1) {
  const auto hosts = parse_discovered_hosts(output, slots);
  REQUIRE(hosts);
  return hosts->empty() ? "" : format_host_list(*hosts);
}
std::string complaint(std::string_view output) {
  const auto hosts = parse_discovered_hosts(output, 1);
  REQUIRE(!hosts);
  return hosts.error().message;
}

}  // namespace

TEST_CASE("a discovery script's lines are hosts in their order") {
  CHECK(listed("b:2\na:4\n") == "b:2,a:4");
  CHECK(listed("b\na:4", 3) == "b:3,a:4");
  CHECK(listed("# now\n\n  b:2  # rack 3\r\n") == "b:2");
  CHECK(listed("me@b:2\n[fe80::1]:3\n") == "me@b:2,[fe80::1]:3");
}

TEST_CASE("what a hostfile accepts is accepted from a discovery script") {
  CHECK(listed("a slots=4\nb slots = 2 max_slots=8 # rack 3\nn[1-2] slots=3\n") ==
        "a:4,b:2,n1:3,n2:3");
  CHECK(listed("\xEF\xBB\xBF"
               "a slots=4\r\n\tb\r\n\r\n",
               2) == "a:4,b:2");
  CHECK(listed("a 4 all.q@a <NULL>\n") == "a:4");
  CHECK(listed("a:1, b:2,n[1,3]:4\n") == "a:1,b:2,n1:4,n3:4");
  CHECK(listed("a slots=4\na:4\n") == "a:4");
}

TEST_CASE("no line is no host, and no error") {
  CHECK(listed("").empty());
  CHECK(listed("\n \n# nobody\n").empty());
}

TEST_CASE("a line that comes twice counts once") {
  CHECK(listed("a:2\nb:1\na:2\n") == "a:2,b:1");
  CHECK(complaint("a:2\nb:1\na:3\n")
            .find("line 3: host a was listed as 'a:2' before, now as 'a:3'") == 0);
}

TEST_CASE("hosts without end are an error, not a launcher without time") {
  std::string lines;
  for (int i = 1; i <= 5'000; ++i) lines += "h" + std::to_string(i) + "\n";
  CHECK(complaint(lines) == "line 4097: more than 4096 hosts");
  CHECK(complaint("a\nn[1-60000]\n") == "line 2: more than 4096 hosts");
  lines.resize(lines.find("h4097\n"));
  CHECK(listed(lines).size() > 4096 * 6);
  CHECK(complaint(lines + "b\n") == "line 4097: more than 4096 hosts");
}

TEST_CASE("what is no host is told with its line") {
  CHECK(complaint("a:2\nb:x\n").find("line 2") == 0);
  CHECK(complaint("a:2\nbad host\n").find("line 2") == 0);
  CHECK(complaint("a:2\n\nb slots=x\n").find("line 3: column 9: expected the number of slots") ==
        0);
  CHECK(complaint("a slots=2 slots=3\n").find("line 1: column 11: the slots of this host appear") ==
        0);
  CHECK(complaint("a:2,b:x\n").find("line 1: column 7: expected the number of slots") == 0);
  CHECK(complaint("Traceback (most recent call last):\n").find("line 1") == 0);
}
