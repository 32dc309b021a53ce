// SPDX-License-Identifier: Apache-2.0
// The parsers are strict: what they accept means the same to every other program. inet_pton() does
// the work, so no form is accepted that the system would reject.
#include "rendezvous/base/address.h"

#include <arpa/inet.h>

#include <algorithm>

#include "rendezvous/base/text.h"

namespace hora {

namespace {

// ::ffff:a.b.c.d (RFC 4291, 2.5.5.2).
bool is_mapped(const IpAddress& address) {
  return address.v6 &&
         std::all_of(address.bytes.begin(), address.bytes.begin() + 10,
                     [](std::uint8_t byte) { return byte == 0; }) &&
         address.bytes[10] == 0xff && address.bytes[11] == 0xff;
}

// All errors here quote the text and say what was expected.
Error bad(std::string_view text, std::string_view expected) {
  return make_error(ErrorCode::kUsage, quote(text) + ": expected " + std::string(expected));
}

}  // namespace

bool IpAddress::is_loopback() const {
  // The whole network 127/8 is loopback, but only one IPv6 address.
  if (!v6) return bytes[0] == 127;
  IpAddress one{.v6 = true};
  one.bytes[15] = 1;
  return *this == one;
}

// 169.254/16 (RFC 3927) and fe80::/10 (RFC 4291).
bool IpAddress::is_link_local() const {
  if (!v6) return bytes[0] == 169 && bytes[1] == 254;
  return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
}

bool IpAddress::is_unspecified() const {
  return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte == 0; });
}

IpAddress IpAddress::unmapped() const {
  if (!is_mapped(*this)) return *this;
  IpAddress v4;
  std::copy(bytes.begin() + 12, bytes.end(), v4.bytes.begin());
  return v4;
}

Result<IpAddress> parse_ip_address(std::string_view text) {
  // inet_pton() needs a terminated string; an embedded NUL would hide what follows it.
  const std::string copy(text);
  if (text.find('\0') == std::string_view::npos) {
    IpAddress address;
    if (::inet_pton(AF_INET, copy.c_str(), address.bytes.data()) == 1) return address;
    address = {.v6 = true};
    if (::inet_pton(AF_INET6, copy.c_str(), address.bytes.data()) == 1) return address;
  }
  return bad(text, "a numeric IPv4 or IPv6 address");
}

std::string format_address(const IpAddress& address) {
  // Large enough for every address, so inet_ntop() cannot fail.
  char text[INET6_ADDRSTRLEN];
  return ::inet_ntop(address.v6 ? AF_INET6 : AF_INET, address.bytes.data(), text, sizeof text);
}

Result<std::uint16_t> parse_port(std::string_view text, bool zero_allowed) {
  const auto port = parse_int<std::uint16_t>(text);
  if (!port || (*port == 0 && !zero_allowed)) {
    return bad(text, zero_allowed ? "a port, 0 to 65535" : "a port, 1 to 65535");
  }
  return *port;
}

Result<Endpoint> parse_endpoint(std::string_view text) {
  // The last colon separates the port; an IPv6 address has colons of its own, hence the brackets.
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad(text, "ADDRESS:PORT or [IPV6]:PORT");
  std::string_view host = text.substr(0, colon);
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  auto address = parse_ip_address(host);
  if (!address || address->v6 != bracketed) return bad(text, "ADDRESS:PORT or [IPV6]:PORT");
  // Port 0 is valid here: a listener may ask for a free port.
  auto port = parse_port(text.substr(colon + 1), true);
  if (!port) return std::move(port).error().with_context(quote(text));
  return Endpoint{*address, *port};
}

std::string format_endpoint(const Endpoint& endpoint) {
  std::string host = format_address(endpoint.address);
  if (endpoint.address.v6) host = "[" + host + "]";
  return host + ":" + std::to_string(endpoint.port);
}

bool Cidr::contains(const IpAddress& candidate) const {
  const IpAddress ours = address.unmapped();
  const IpAddress theirs = candidate.unmapped();
  // Compared after unmapping, so that a dual-stack server's allow list works for IPv4 peers.
  if (ours.v6 != theirs.v6) return false;
  // A network in mapped form counts its prefix in 128 bits.
  int bits = prefix_length - (address.v6 && !ours.v6 ? 96 : 0);
  // A mapped network of less than 96 bits holds every IPv4 address.
  if (bits < 0) bits = 0;
  const auto whole = static_cast<std::size_t>(bits / 8);
  if (!std::equal(ours.bytes.begin(), ours.bytes.begin() + whole, theirs.bytes.begin())) {
    return false;
  }
  if (bits % 8 == 0) return true;
  // The remaining bits of the byte in which the prefix ends.
  const int mask = 0xff << (8 - bits % 8) & 0xff;
  return (ours.bytes[whole] & mask) == (theirs.bytes[whole] & mask);
}

// substr(0, npos) takes the whole text when there is no slash.
Result<Cidr> parse_cidr(std::string_view text) {
  const auto slash = text.find('/');
  auto address = parse_ip_address(text.substr(0, slash));
  if (!address) return bad(text, "a network such as 10.0.0.0/8 or fd00::/8, or an address");
  if (slash == std::string_view::npos) return Cidr{*address, address->bit_count()};
  const auto length = parse_int<int>(text.substr(slash + 1));
  if (!length || *length < 0 || *length > address->bit_count()) {
    return bad(text, "a prefix length of 0 to " + std::to_string(address->bit_count()));
  }
  return Cidr{*address, *length};
}

std::string format_cidr(const Cidr& network) {
  return format_address(network.address) + "/" + std::to_string(network.prefix_length);
}

}  // namespace hora
