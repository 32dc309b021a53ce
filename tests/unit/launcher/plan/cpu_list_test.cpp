// SPDX-License-Identifier: Apache-2.0
#include "launcher/plan/cpu_list.h"

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

TEST_CASE("CPU lists keep the order in which they are written") {
  const auto lists = parse_cpu_lists("8,0-2:4", "--bind");
  REQUIRE(lists);
  CHECK(*lists == std::vector<std::vector<int>>{{8, 0, 1, 2}, {4}});
  CHECK(format_cpu_list(lists->front()) == "0-2,8");
  CHECK(format_cpu_list({}).empty());
}

TEST_CASE("Errors in CPU lists point at the item") {
  const auto error_of = [](std::string_view text) {
    const auto lists = parse_cpu_lists(text, "--bind");
    return lists ? "" : lists.error().message.substr(0, lists.error().message.find('\n'));
  };
  CHECK(error_of("0-3:x") == "--bind: column 5: expected CPUs such as 0-3,8, found 'x'");
  CHECK(error_of("0-3,") == "--bind: column 5: expected CPUs such as 0-3,8, found ''");
  CHECK(error_of("4,3-1") == "--bind: column 3: the range '3-1' ends before it begins");
  CHECK(error_of("1,0-2") == "--bind: column 3: CPU 1 is listed twice");
  CHECK(error_of("0-9999") == "--bind: column 1: CPU 9999 is too large; at most 8191");
}

}  // namespace
}  // namespace hora::launcher
