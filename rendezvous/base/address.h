// SPDX-License-Identifier: Apache-2.0
// Numeric network addresses: IPv4, IPv6, with a port, as a network.  [pure]
// Nothing here resolves a name; see net/resolve.h.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"

namespace hora {

struct IpAddress {
  bool v6 = false;
  std::array<std::uint8_t, 16> bytes{};  // network order; an IPv4 address uses the first four

  int bit_count() const { return v6 ? 128 : 32; }
  bool is_loopback() const;     // 127.0.0.0/8, ::1
  bool is_link_local() const;   // 169.254.0.0/16, fe80::/10
  bool is_unspecified() const;  // 0.0.0.0, ::
  // Returns ::ffff:1.2.3.4, which is how a dual-stack socket shows an IPv4 peer, as 1.2.3.4; any
  // other address unchanged.
  IpAddress unmapped() const;

  // NOLINTNEXTLINE(modernize-use-nullptr): the 0 that the compiler compares the order with.
  friend auto operator<=>(const IpAddress&, const IpAddress&) = default;
};

// "10.0.0.1", "fe80::1". No brackets, no zone ("%eth0"), no shortened IPv4 ("10.1").
Result<IpAddress> parse_ip_address(std::string_view text);
std::string format_address(const IpAddress& address);

// An address and a port: "10.0.0.1:80", "[fe80::1]:80".
struct Endpoint {
  IpAddress address;
  std::uint16_t port = 0;
  friend auto operator<=>(const Endpoint&, const Endpoint&) = default;
};

Result<Endpoint> parse_endpoint(std::string_view text);
std::string format_endpoint(const Endpoint& endpoint);

// A network: an address of which the first `prefix_length` bits count.
struct Cidr {
  IpAddress address;
  int prefix_length = 0;

  // IPv4 and IPv6 never match each other, except that a mapped address counts as IPv4.
  bool contains(const IpAddress& candidate) const;
  // NOLINTNEXTLINE(modernize-use-nullptr): the 0 that the compiler compares the order with.
  friend auto operator<=>(const Cidr&, const Cidr&) = default;
};

// "10.0.0.0/8", "fd00::/8", or a single address, which is the network of that one address. Bits
// beyond the prefix may be set, as in the address of an interface: "10.0.0.7/24".
Result<Cidr> parse_cidr(std::string_view text);
std::string format_cidr(const Cidr& network);

// 1..65535; with `zero_allowed` also 0, which asks the system for a free one.
Result<std::uint16_t> parse_port(std::string_view text, bool zero_allowed = false);

}  // namespace hora
