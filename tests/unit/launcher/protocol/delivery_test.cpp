// SPDX-License-Identifier: Apache-2.0
#include "launcher/protocol/delivery.h"

#include "launcher/protocol/messages.h"
#include "tests/support/catch.h"

namespace hora::launcher {

TEST_CASE("part list: what is written is read") {
  std::vector<NeededPart> parts(3);
  parts[0].hash = "0123456789abcdef";
  parts[1] = {"fedcba9876543210", true, {}, {}, ""};
  parts[2] = {
      "00112233445566778", false, {"libcuda.so.1"}, {"libmpi.so.40", "libstdc++.so.6"}, "2.34"};
  CHECK(part_list_text(parts) ==
        "0123456789abcdef,fedcba9876543210:gpu,00112233445566778:with=libcuda.so.1:"
        "lacks=libmpi.so.40#libstdc++.so.6:glibc=2.34");
  CHECK(*parse_part_list(part_list_text(parts)) == parts);
  CHECK(parse_part_list("")->empty());
}

TEST_CASE("part list: text that is not a hash is refused") {
  for (const char* text :
       {"short", "0123456789abcdeg", "0123456789abcdef,", ",0123456789abcdef",
        "0123456789abcdef:cpu", ":gpu", "../0123456789abcdef",
        "0123456789abcdef:lacks=", "0123456789abcdef:lacks=a#", "0123456789abcdef:with=a b",
        "0123456789abcdef:glibc=", "0123456789abcdef:glibc=2.x"}) {
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

TEST_CASE("part list: who needs a part depends on what the host has") {
  NeededPart part{"0123456789abcdef", false, {"libcuda.so.1"}, {"a.so", "b.so"}, "2.34"};
  CHECK(libraries_in({part, part}) == std::vector<std::string>{"libcuda.so.1", "a.so", "b.so"});
  Hello host;
  host.c_library = "glibc 2.36";
  host.libraries = {{"libcuda.so.1", "/x/libcuda.so.1", ""},
                    {"a.so", "/a.so", ""},
                    {"b.so", "", "b.so was not found"}};
  CHECK(is_needed(part, host));
  SECTION("it has them all") {
    host.libraries[2] = {"b.so", "/b.so", ""};
    CHECK_FALSE(is_needed(part, host));
  }
  SECTION("one that is there cannot be loaded") {
    host.libraries[2] = {"b.so", "/b.so", "/b.so needs c.so, which was not found"};
    CHECK(is_needed(part, host));
  }
  SECTION("it lacks what the part is for") {
    host.libraries[0].fault = "not found";
    CHECK_FALSE(is_needed(part, host));
  }
  SECTION("its glibc is too old") {
    host.c_library = "glibc 2.31";
    CHECK_FALSE(is_needed(part, host));
    host.c_library = "musl";
    CHECK_FALSE(is_needed(part, host));
    host.c_library = "";
    CHECK(is_needed(part, host));
  }
  SECTION("without conditions every host needs it") {
    CHECK(is_needed(NeededPart{"0123456789abcdef", false, {}, {}, ""}, Hello{}));
    CHECK_FALSE(is_needed(NeededPart{"0123456789abcdef", true, {}, {}, ""}, Hello{}));
  }
}

}  // namespace hora::launcher
