// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/address.h"

#include "tests/support/catch.h"

using namespace hora;

namespace {

IpAddress ip(std::string_view text) {
  auto address = parse_ip_address(text);
  INFO(text);
  REQUIRE(address);
  return *address;
}

Cidr cidr(std::string_view text) {
  auto network = parse_cidr(text);
  INFO(text);
  REQUIRE(network);
  return *network;
}

}  // namespace

TEST_CASE("numeric addresses print as they are parsed") {
  for (const auto* text : {"0.0.0.0", "127.0.0.1", "255.255.255.255", "::", "::1", "fe80::1",
                           "2001:db8::ff00:42:8329", "::ffff:10.0.0.1"}) {
    CHECK(format_address(ip(text)) == text);
  }
  CHECK(format_address(ip("2001:0DB8:0:0::1")) == "2001:db8::1");
}

TEST_CASE("what is not a numeric address is refused by name") {
  for (const std::string_view text : {"", "localhost", "1.2.3", "1.2.3.256", "1.2.3.4 ",
                                      "01.2.3.4x", "[::1]", "fe80::1%eth0", ":::", "1::2::3"}) {
    auto address = parse_ip_address(text);
    CAPTURE(text);
    REQUIRE_FALSE(address);
    CHECK(address.error().code == ErrorCode::kUsage);
  }
  CHECK_FALSE(parse_ip_address(std::string_view("1.2.3.4\0x", 9)));
}

TEST_CASE("kinds of addresses") {
  CHECK(ip("127.9.9.9").is_loopback());
  CHECK(ip("::1").is_loopback());
  CHECK_FALSE(ip("128.0.0.1").is_loopback());
  CHECK_FALSE(ip("::2").is_loopback());
  CHECK(ip("169.254.1.1").is_link_local());
  CHECK(ip("febf::1").is_link_local());
  CHECK_FALSE(ip("fec0::1").is_link_local());
  CHECK(ip("0.0.0.0").is_unspecified());
  CHECK(ip("::").is_unspecified());
  CHECK(ip("::ffff:10.0.0.1").unmapped() == ip("10.0.0.1"));
  CHECK(ip("::1").unmapped() == ip("::1"));
}

TEST_CASE("endpoints need brackets around IPv6") {
  auto v4 = parse_endpoint("10.0.0.1:80");
  REQUIRE(v4);
  CHECK(format_endpoint(*v4) == "10.0.0.1:80");
  auto v6 = parse_endpoint("[fe80::1]:0");
  REQUIRE(v6);
  CHECK(v6->address == ip("fe80::1"));
  CHECK(v6->port == 0);
  CHECK(format_endpoint(*v6) == "[fe80::1]:0");
  for (const auto* text : {"", "10.0.0.1", "10.0.0.1:", "10.0.0.1:65536", "10.0.0.1:-1", "::1:80",
                           "[10.0.0.1]:80", "host:80", "[::1]80", "[::1:80"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_endpoint(text));
  }
}

TEST_CASE("ports") {
  CHECK(*parse_port("1") == 1);
  CHECK(*parse_port("0", true) == 0);
  CHECK_FALSE(parse_port("0"));
  CHECK_FALSE(parse_port("65536"));
  CHECK_FALSE(parse_port("ssh"));
}

TEST_CASE("a network contains the addresses that share its prefix") {
  CHECK(cidr("10.0.0.0/8").contains(ip("10.255.1.2")));
  CHECK_FALSE(cidr("10.0.0.0/8").contains(ip("11.0.0.0")));
  CHECK(cidr("10.77.3.9/22").contains(ip("10.77.0.1")));
  CHECK_FALSE(cidr("10.77.3.9/22").contains(ip("10.77.4.1")));
  CHECK(cidr("0.0.0.0/0").contains(ip("8.8.8.8")));
  CHECK(cidr("192.168.1.1").contains(ip("192.168.1.1")));
  CHECK_FALSE(cidr("192.168.1.1").contains(ip("192.168.1.2")));
  CHECK(cidr("fd00::/8").contains(ip("fdff::1")));
  CHECK_FALSE(cidr("fd00::/8").contains(ip("fe00::1")));
  CHECK(cidr("fe80::/10").contains(ip("febf::1")));
}

TEST_CASE("families do not mix, mapped addresses are IPv4") {
  CHECK_FALSE(cidr("0.0.0.0/0").contains(ip("::1")));
  CHECK_FALSE(cidr("::/0").contains(ip("127.0.0.1")));
  CHECK(cidr("10.0.0.0/8").contains(ip("::ffff:10.1.2.3")));
  CHECK(cidr("::ffff:10.0.0.0/104").contains(ip("10.1.2.3")));
  CHECK_FALSE(cidr("::ffff:10.0.0.0/104").contains(ip("11.1.2.3")));
}

TEST_CASE("networks print as they are parsed, and bad ones are refused") {
  CHECK(format_cidr(cidr("10.0.0.7/24")) == "10.0.0.7/24");
  CHECK(format_cidr(cidr("::1")) == "::1/128");
  for (const auto* text : {"", "/8", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "fd00::/129",
                           "10.0.0.0/8/8", "name/8"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_cidr(text));
  }
}
