// SPDX-License-Identifier: Apache-2.0
#include "launcher/protocol/part_list.h"

#include "tests/support/catch.h"

namespace hora::launcher {

TEST_CASE("part list: what is written is read") {
  const std::vector<NeededPart> parts = {{"0123456789abcdef", false}, {"fedcba9876543210", true}};
  CHECK(part_list_text(parts) == "0123456789abcdef,fedcba9876543210:gpu");
  CHECK(*parse_part_list(part_list_text(parts)) == parts);
  CHECK(parse_part_list("")->empty());
}

TEST_CASE("part list: what is no hash is refused") {
  for (const char* text : {"short", "0123456789abcdeg", "0123456789abcdef,", ",0123456789abcdef",
                           "0123456789abcdef:cpu", ":gpu", "../0123456789abcdef"}) {
    INFO(text);
    const auto parts = parse_part_list(text);
    // A comma at the end adds nothing.
    CHECK(parts.has_value() == (std::string_view(text) == "0123456789abcdef,"));
  }
}

TEST_CASE("part list: the name of a bundle depends on its parts and not on their order") {
  const std::string name = bundle_name({"0123456789abcdef", "fedcba9876543210"});
  CHECK(is_hash(name));
  CHECK(name == bundle_name({"fedcba9876543210", "0123456789abcdef"}));
  CHECK(name != bundle_name({"0123456789abcdef"}));
  CHECK(name != bundle_name({"0123456789abcdef", "fedcba9876543211"}));
}

}  // namespace hora::launcher
