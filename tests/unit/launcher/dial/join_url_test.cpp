// SPDX-License-Identifier: Apache-2.0
#include "launcher/dial/join_url.h"

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

const std::string kSecret = std::string(64, 'a') + std::string(32, 'b');

TEST_CASE("A URL to join says where the launcher is and how to know it") {
  const JoinUrl url{std::string(64, 'a'),
                    std::string(32, 'b'),
                    {{"10.0.0.1", 4711}, {"fe80::1", 1}, {"head.example", 65535}}};
  const std::string text = "hora://" + kSecret + "@10.0.0.1:4711,[fe80::1]:1,head.example:65535";
  CHECK(format_join_url(url) == text);
  CHECK(*parse_join_url(text) == url);
  CHECK(*parse_join_url("  " + text + "\r\n") == url);
}

TEST_CASE("What is no URL to join is refused, and the secret is not repeated") {
  for (const std::string& text :
       {std::string(), std::string("hora://"), std::string("http://a"), "hora://" + kSecret,
        "hora://" + kSecret.substr(1) + "@a:1", "hora://" + kSecret.substr(2) + "@a:1",
        "hora://" + kSecret + "0@a:1", "hora://" + std::string(96, 'g') + "@a:1",
        "hora://" + kSecret + "@", "hora://" + kSecret + "@a", "hora://" + kSecret + "@:1",
        "hora://" + kSecret + "@a:0", "hora://" + kSecret + "@a:65536",
        "hora://" + kSecret + "@a:1,", "hora://" + kSecret + "@[]:1",
        "hora://" + kSecret + "@[[a]]:1", "hora://" + kSecret + "@[a:1"}) {
    const auto parsed = parse_join_url(text);
    INFO(text);
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().code == ErrorCode::kUsage);
    CHECK(parsed.error().message.find("aaaa") == std::string::npos);
    CHECK(parsed.error().message.find("bbbb") == std::string::npos);
  }
}

}  // namespace
}  // namespace hora::launcher
