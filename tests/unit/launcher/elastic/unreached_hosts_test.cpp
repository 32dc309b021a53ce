// SPDX-License-Identifier: Apache-2.0
#include "launcher/elastic/unreached_hosts.h"

#include <string>

#include "tests/support/catch.h"

using namespace hora::launcher::elastic;

namespace {

using Members = std::vector<UnreachedHosts::Member>;
using Pairs = std::vector<std::pair<std::size_t, std::size_t>>;

Members members(const std::string& names) {
  Members all;
  for (const char name : names) all.push_back({std::string(1, name), true});
  return all;
}

// "c(a) d(a,b)": who is left out, and whom it does not reach.
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
  // Whoever spoils them in turn: there is an end.
  CHECK(end_epoch(hosts, {{0, 2}}, abc).empty());
  CHECK(end_epoch(hosts, {{0, 1}}, abc).empty());
  CHECK(end_epoch(hosts, {{0, 2}}, abc).empty());
  CHECK(end_epoch(hosts, {{0, 1}}, abc).empty());
  CHECK(end_epoch(hosts, {{0, 2}}, abc) == "c(a)");
}

TEST_CASE("a host that is left out begins anew when it returns") {
  UnreachedHosts hosts;
  for (int i = 0; i < 3; ++i) {
    CHECK(end_epoch(hosts, {{0, 1}}, members("ab")).empty());
    CHECK(end_epoch(hosts, {{0, 1}}, members("ab")).empty());
    CHECK(end_epoch(hosts, {{0, 1}}, members("ab")) == "b(a)");
  }
}

TEST_CASE("ranks of one host are no pair of hosts") {
  CHECK(after_three({{1, 1}}, members("ab")).empty());
}
