// SPDX-License-Identifier: Apache-2.0
#include "launcher/plan/rank_list.h"

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

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
