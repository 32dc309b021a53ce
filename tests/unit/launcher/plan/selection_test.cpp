// SPDX-License-Identifier: Apache-2.0
#include "launcher/plan/selection.h"

#include "launcher/text/user_input.h"
#include "rendezvous/base/text.h"
#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

const std::vector<Host> kHosts{{"a", "", 4}, {"b", "me", 4}, {"c", "", {}}};

std::vector<HostTerm> terms(std::string_view text) {
  auto parsed = parse_host_terms(text, "--include");
  if (!parsed) FAIL(parsed.error().message);
  return *parsed;
}

// "a:2(0,2) me@b:4"
std::string text_of(const Result<std::vector<Host>>& hosts) {
  if (!hosts) return hosts.error().message;
  std::string text;
  for (const Host& host : *hosts) {
    std::vector<std::string> gpus;
    for (const int gpu : host.gpus) gpus.push_back(std::to_string(gpu));
    text += (text.empty() ? "" : " ") + format_host(host);
    if (!gpus.empty()) text += "(" + join(gpus, ",") + ")";
  }
  return text;
}

std::string included(std::string_view list, std::optional<int> otherwise = {}) {
  return text_of(include_hosts(kHosts, terms(list), otherwise));
}
std::string excluded(std::string_view list, std::optional<int> otherwise = {}) {
  return text_of(exclude_hosts(kHosts, terms(list), otherwise));
}

TEST_CASE("Hosts and GPUs as DeepSpeed includes them") {
  CHECK(included("a@b:0,2") == "a:4 me@b:2(0,2)");
  CHECK(included("b:2,0@a") == "a:4 me@b:2(2,0)");
  CHECK(included("a:1-3") == "a:3(1,2,3)");
  CHECK(included("C:5,7") == "c:2(5,7)");
  CHECK(included("a,c") == "a:4 c");
  CHECK(included("[fe80::1]") == "--include: 'fe80::1' is not one of the job's hosts: a, b, c");
  CHECK(included("a:4") == "--include: host a has 4 slots, counted from 0; there is no 4");
  CHECK(included("c:2", 2) == "--include: host c has 2 slots, counted from 0; there is no 2");
  CHECK(included("a:0@A:1") == "--include: host a is named twice");
}

TEST_CASE("Hosts and GPUs that are left out") {
  CHECK(excluded("b") == "a:4 c");
  CHECK(excluded("a:0@b:1,3") == "a:3(1,2,3) me@b:2(0,2) c");
  CHECK(excluded("a:0-3") == "me@b:4 c");
  CHECK(excluded("c:0", 2) == "a:4 me@b:4 c:1(1)");
  CHECK(excluded("c:0") ==
        "--exclude: the slots of host c are not known; give them, such as -H c:8");
  CHECK(excluded("a@b@c") == "--exclude: no host is left");
  CHECK(excluded("d") == "--exclude: 'd' is not one of the job's hosts: a, b, c");
}

TEST_CASE("Lists of hosts and GPUs: mistakes") {
  for (const auto& [text, column] : std::vector<std::pair<std::string_view, int>>{
           {"a:", 3}, {"a:x", 3}, {"a@b:0,", 5}, {"a:0,0", 3}, {"a:1-0", 3}, {"a:-1", 3}}) {
    const auto parsed = parse_host_terms(text, "--include");
    INFO(text);
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().message.find("--include: column " + std::to_string(column) +
                                      ": expected GPUs") == 0);
  }
  CHECK(parse_host_terms("a:0,b:1", "--include")
            .error()
            .message.find("--include: column 1: expected '@' between two hosts with GPUs") == 0);
  for (const std::string_view text : {"", "@", "a@", "a b", ":0"}) {
    INFO(text);
    CHECK_FALSE(parse_host_terms(text, "--include"));
  }
}

std::vector<int> members(std::string_view text) {
  const auto list = RankList::parse(text, "--show-ranks");
  REQUIRE(list);
  std::vector<int> out;
  for (int rank = 0; rank < 12; ++rank) {
    if (list->contains(rank)) out.push_back(rank);
  }
  return out;
}

std::string error_of(std::string_view text) {
  const auto list = RankList::parse(text, "--show-ranks");
  REQUIRE_FALSE(list);
  CHECK(list.error().code == ErrorCode::kUsage);
  return list.error().message;
}

TEST_CASE("A list of ranks has numbers and ranges") {
  CHECK(members("0") == std::vector<int>{0});
  CHECK(members("0,4-7") == std::vector<int>{0, 4, 5, 6, 7});
  CHECK(members("3-3,1,1") == std::vector<int>{1, 3});
  CHECK(members("none").empty());
  CHECK(RankList::parse("2,9-11,3", "")->largest() == 11);
  CHECK(RankList::parse("none", "")->largest() == -1);
}

TEST_CASE("What stands before a rank is counted, however long the list is") {
  std::string all;
  for (int i = 0; i < 3000; ++i) all += "0-999998,";
  CHECK(RankList::parse(all + "999999", "")->index_of(999'999) == 3000 * std::int64_t{999'999});
}

TEST_CASE("A list of ranks that is wrong says where") {
  CHECK(error_of("0,x").find("--show-ranks: column 3: expected ranks such as 0,4-7, or none, "
                             "found 'x'") == 0);
  CHECK(error_of("0,").find("column 3") != std::string::npos);
  CHECK(error_of("").find("column 1") != std::string::npos);
  CHECK(error_of("-1").find("column 1") != std::string::npos);
  CHECK(error_of("1-").find("found '1-'") != std::string::npos);
  CHECK(error_of("2,7-4").find("column 3: the range '7-4' ends before it begins") !=
        std::string::npos);
  CHECK(error_of("7,0-1000000").find("column 3: rank 1000000 is too large") != std::string::npos);
  CHECK(error_of("99999999999").find("found '99999999999'") != std::string::npos);
}

}  // namespace
}  // namespace hora::launcher
