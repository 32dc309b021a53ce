// SPDX-License-Identifier: Apache-2.0
#include "launcher/elastic/host_registry.h"

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

TEST_CASE("an empty list has neither hosts nor errors") {
  CHECK(listed("").empty());
  CHECK(listed("\n \n# a comment\n").empty());
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

TEST_CASE("an entry that does not name a host is reported with its line") {
  CHECK(complaint("a:2\nb:x\n").find("line 2") == 0);
  CHECK(complaint("a:2\nbad host\n").find("line 2") == 0);
  CHECK(complaint("a:2\n\nb slots=x\n").find("line 3: column 9: expected the number of slots") ==
        0);
  CHECK(complaint("a slots=2 slots=3\n").find("line 1: column 11: the slots of this host appear") ==
        0);
  CHECK(complaint("a:2,b:x\n").find("line 1: column 7: expected the number of slots") == 0);
  CHECK(complaint("Traceback (most recent call last):\n").find("line 1") == 0);
}

using namespace hora::launcher;
using namespace hora::launcher::elastic;
using namespace std::chrono_literals;

namespace {

const HostRegistry::TimePoint kStart{};

std::string usable(const HostRegistry& registry, HostRegistry::TimePoint now) {
  const auto hosts = registry.available(now);
  return hosts.empty() ? "" : format_host_list(hosts);
}

Host host(const std::string& name, int slots) { return {name, "", slots}; }

}  // namespace

TEST_CASE("hosts keep the place at which they were first seen") {
  HostRegistry registry(std::nullopt, [] { return 0.0; });
  registry.list({host("b", 2), host("a", 1)});
  registry.list({host("c", 1), host("a", 1), host("b", 3)});
  CHECK(usable(registry, kStart) == "b:3,a:1,c:1");
  registry.list({host("c", 1)});
  CHECK(usable(registry, kStart) == "c:1");
  registry.list({host("a", 1), host("c", 1), host("d", 0)});
  CHECK(usable(registry, kStart) == "a:1,c:1");
}

TEST_CASE("without a range a host that failed never returns") {
  HostRegistry registry(std::nullopt, [] { return 0.0; });
  registry.list({host("a", 1), host("b", 1)});
  registry.blacklist("a", kStart);
  CHECK(usable(registry, kStart + 24h) == "b:1");
  CHECK(!registry.next_return(kStart));
  registry.list({host("b", 1)});
  registry.list({host("a", 1), host("b", 1)});
  CHECK(usable(registry, kStart) == "b:1");
}

TEST_CASE("with a range it returns, later after each failure") {
  double luck = 0.0;
  HostRegistry registry(CooldownRange{2s, 20s}, [&luck] { return luck; });
  registry.list({host("a", 1)});
  auto now = kStart;
  registry.blacklist("a", now);
  CHECK(registry.next_return(now) == now + 4s);
  registry.blacklist("a", now + 1s);  // while it is left alone: changes nothing
  CHECK(registry.next_return(now) == now + 4s);
  CHECK(registry.is_blacklisted("a", now + 3999ms));
  CHECK(usable(registry, now + 4s) == "a:1");
  now += 4s;
  luck = 0.5;
  registry.blacklist("a", now);
  CHECK(registry.next_return(now) == now + 9s);
  now += 9s;
  registry.blacklist("a", now);
  CHECK(registry.next_return(now) == now + 17s);
  for (int failure = 4; failure < 80; ++failure) {
    now += 20s;
    registry.blacklist("a", now);
    CHECK(registry.next_return(now) == now + 20s);
  }
}

TEST_CASE("a host that is not listed does not return by itself") {
  HostRegistry registry(CooldownRange{1s, 10s}, [] { return 0.0; });
  registry.list({host("a", 1)});
  registry.blacklist("a", kStart);
  registry.list({});
  CHECK(!registry.may_return(kStart));
  registry.list({host("a", 2)});
  CHECK(registry.may_return(kStart));
  CHECK(usable(registry, kStart + 2s) == "a:2");
}

using namespace hora::launcher::elastic;

namespace {

using Members = std::vector<UnreachedHosts::Member>;
using Pairs = std::vector<std::pair<std::size_t, std::size_t>>;

Members members(const std::string& names) {
  Members all;
  for (const char name : names) all.push_back({std::string(1, name), true});
  return all;
}

// "c(a) d(a,b)": the host that is left out, and those that it does not reach.
std::string end_epoch(UnreachedHosts& hosts, const Pairs& pairs, const Members& of) {
  for (const auto& [one, other] : pairs) hosts.note(one, other);
  std::string text;
  for (const auto& [place, missing] : hosts.end_epoch(of)) {
    text += (text.empty() ? "" : " ") + of[place].name + "(";
    for (const auto& each : missing) text += (each == missing.front() ? "" : ",") + each;
    text += ")";
  }
  return text;
}

std::string after_three(const Pairs& pairs, const Members& of) {
  UnreachedHosts hosts;
  CHECK(end_epoch(hosts, pairs, of).empty());
  CHECK(end_epoch(hosts, pairs, of).empty());
  return end_epoch(hosts, pairs, of);
}

}  // namespace

TEST_CASE("of two hosts without a connection the one with the higher ranks is left out") {
  CHECK(after_three({{0, 2}}, members("abc")) == "c(a)");
  CHECK(after_three({{3, 1}, {1, 3}}, members("abcd")) == "d(b)");
  CHECK(after_three({{0, 1}}, members("ab")) == "b(a)");
  CHECK(after_three({{1, 0}, {2, 0}}, members("abcd")) == "b(a) c(a)");
}

TEST_CASE("a host that reaches none of several others is left out instead of them") {
  CHECK(after_three({{1, 0}, {2, 0}}, members("abc")) == "a(b,c)");
  CHECK(after_three({{1, 0}, {1, 2}, {3, 1}}, members("abcd")) == "b(a,c,d)");
  // Unless it alone has what the others would need.
  Members one_knows{{"a", true}, {"b", false}, {"c", false}};
  CHECK(after_three({{1, 0}, {2, 0}}, one_knows) == "b(a) c(a)");
}

TEST_CASE("epochs count while one after the other is spoilt") {
  UnreachedHosts hosts;
  const Members abc = members("abc");
  for (int i = 0; i < 5; ++i) {
    CHECK(end_epoch(hosts, {{0, 2}}, abc).empty());
    CHECK(end_epoch(hosts, {{0, 2}}, abc).empty());
    CHECK(end_epoch(hosts, {}, abc).empty());  // this one came about
  }
  // Whichever spoils them in turn: there is an end.
  CHECK(end_epoch(hosts, {{0, 2}}, abc).empty());
  CHECK(end_epoch(hosts, {{0, 1}}, abc).empty());
  CHECK(end_epoch(hosts, {{0, 2}}, abc).empty());
  CHECK(end_epoch(hosts, {{0, 1}}, abc).empty());
  CHECK(end_epoch(hosts, {{0, 2}}, abc) == "c(a)");
}

TEST_CASE("a host that is left out starts from zero when it returns") {
  UnreachedHosts hosts;
  for (int i = 0; i < 3; ++i) {
    CHECK(end_epoch(hosts, {{0, 1}}, members("ab")).empty());
    CHECK(end_epoch(hosts, {{0, 1}}, members("ab")).empty());
    CHECK(end_epoch(hosts, {{0, 1}}, members("ab")) == "b(a)");
  }
}

TEST_CASE("ranks of one host are not a pair of hosts") {
  CHECK(after_three({{1, 1}}, members("ab")).empty());
}
