// SPDX-License-Identifier: Apache-2.0
// Measures the link between two hosts: a TCP stream for round trips and bandwidth, and UDP packets
// for the largest size that passes. Both sides know a random word, so a probe cannot reach the
// wrong program.
#include "peers.h"

#include <netinet/in.h>
#include <netinet/ip.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/net/socket.h"

namespace hora::doctor {

namespace {

constexpr std::size_t kPing = 8;
constexpr int kPings = 10;
constexpr std::size_t kChunk = 64 * 1024;
// Long enough to leave slow start on most links, short enough not to disturb them.
constexpr Milliseconds kBurst{25};
constexpr Milliseconds kConnectTimeout{1'000};
constexpr Milliseconds kTimeout{2'000};
constexpr Milliseconds kPacketTimeout{120};
constexpr int kPortTries = 20;

Status receive_exactly(int fd, char* bytes, std::size_t size, Clock::time_point deadline) {
  while (size > 0) {
    const auto got = net::receive_some(fd, bytes, size, deadline);
    if (!got) return got.error();
    if (*got == 0)
      return make_error(ErrorCode::kUnavailable, "the other end closed the connection");
    bytes += *got;
    size -= *got;
  }
  return Ok{};
}

// The server's side: the word, pings that it answers, then a burst until the end of input, whose
// bytes it counts and reports.
void serve_one(os::Fd peer, const std::string& nonce) {
  const auto deadline = Clock::now() + kTimeout;
  std::string said(nonce.size(), '\0');
  if (!receive_exactly(peer.get(), said.data(), said.size(), deadline) || said != nonce) return;
  std::array<char, kPing> ping;
  for (int i = 0; i < kPings; ++i) {
    if (!receive_exactly(peer.get(), ping.data(), ping.size(), deadline) ||
        !net::send_all(peer.get(), {ping.data(), ping.size()}, deadline)) {
      return;
    }
  }
  std::vector<char> chunk(kChunk);
  std::uint64_t total = 0;
  while (true) {
    const auto got = net::receive_some(peer.get(), chunk.data(), chunk.size(), deadline);
    if (!got) return;
    if (*got == 0) break;
    total += *got;
  }
  (void)net::send_all(peer.get(), {reinterpret_cast<const char*>(&total), sizeof total}, deadline);
}

// Checks whether a packet of this size, headers included, arrives and is answered with its size.
bool packet_passes(int fd, const std::string& nonce, int size, int overhead) {
  std::string packet = nonce;
  packet.resize(static_cast<std::size_t>(size - overhead), 'x');
  // Twice, because UDP may lose a packet by chance.
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (::send(fd, packet.data(), packet.size(), MSG_NOSIGNAL) < 0) return false;
    pollfd entry{fd, POLLIN, 0};
    if (::poll(&entry, 1, static_cast<int>(kPacketTimeout.count())) <= 0) continue;
    std::uint32_t echoed = 0;
    // A late answer may belong to an earlier size.
    while (::recv(fd, &echoed, sizeof echoed, MSG_DONTWAIT) == sizeof echoed) {
      if (echoed == packet.size()) return true;
    }
  }
  return false;
}

void probe_packets(const Endpoint& where, const std::string& nonce, Json& out) {
  sockaddr_storage address{};
  const unsigned length = net::to_sockaddr(where, address);
  const bool v6 = address.ss_family == AF_INET6;
  const os::Fd fd(::socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid() || ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0)
    return;
  // Never fragment, whatever the kernel has learnt before.
  const int probe = IP_PMTUDISC_PROBE;
  if (v6) {
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, &probe, sizeof probe);
  } else {
    ::setsockopt(fd.get(), IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof probe);
  }
  int mtu = 0;
  socklen_t size = sizeof mtu;
  if (::getsockopt(fd.get(), v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MTU : IP_MTU, &mtu, &size) !=
      0) {
    return;
  }
  // The largest UDP payload; loopback has a larger MTU.
  mtu = std::min(mtu, 65'507);
  // The IP and UDP headers.
  const int overhead = v6 ? 48 : 28;
  out["mtu"] = mtu;
  // UDP does not pass at all, so nothing can be said about sizes.
  if (!packet_passes(fd.get(), nonce, 256, overhead)) return;
  // Usual sizes, from the interface's own down to the smallest that IPv4 guarantees.
  for (const int candidate : {mtu, 8192, 1500, 1450, 1400, 1280, 576}) {
    if (candidate > mtu) continue;
    if (packet_passes(fd.get(), nonce, candidate, overhead)) {
      out["path_mtu"] = candidate;
      return;
    }
  }
  out["path_mtu"] = 256;
}

Result<Json> probe_stream(const Endpoint& where, const std::string& nonce) {
  const auto deadline = Clock::now() + kTimeout;
  auto socket = net::connect_tcp(where, Clock::now() + kConnectTimeout);
  if (!socket) return std::move(socket).error();
  const int fd = socket->get();
  Json out;
  if (const auto own = net::local_endpoint(fd)) out["source"] = format_address(own->address);
  HORA_TRY(net::send_all(fd, nonce, deadline));
  double best_us = 1e12;
  std::array<char, kPing> ping{};
  for (int i = 0; i < kPings; ++i) {
    const auto began = Clock::now();
    HORA_TRY(net::send_all(fd, {ping.data(), ping.size()}, deadline));
    HORA_TRY(receive_exactly(fd, ping.data(), ping.size(), deadline));
    // The best of several: everything else measures other load.
    best_us =
        std::min(best_us, std::chrono::duration<double, std::micro>(Clock::now() - began).count());
  }
  out["rtt_us"] = best_us;
  const std::string chunk(kChunk, 'x');
  const auto began = Clock::now();
  while (Clock::now() - began < kBurst) HORA_TRY(net::send_all(fd, chunk, deadline));
  ::shutdown(fd, SHUT_WR);
  std::uint64_t arrived = 0;
  HORA_TRY(receive_exactly(fd, reinterpret_cast<char*>(&arrived), sizeof arrived, deadline));
  // From the first byte sent until the other end has counted the last one.
  const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
  out["mbit_s"] = static_cast<double>(arrived) * 8 / seconds / 1e6;
  return out;
}

// Listens with both kinds of sockets on one port that is free for both.
Result<std::pair<os::Fd, os::Fd>> listen_on_both(int& port) {
  Error last = make_error(ErrorCode::kUnavailable, "no port is free for TCP and UDP");
  for (int attempt = 0; attempt < kPortTries; ++attempt) {
    auto any = parse_ip_address("::");
    auto tcp = net::listen_tcp({*any, 0});
    // There is no IPv6 here.
    if (!tcp) {
      any = parse_ip_address("0.0.0.0");
      tcp = net::listen_tcp({*any, 0});
    }
    if (!tcp) return std::move(tcp).error();
    const auto where = net::local_endpoint(tcp->get());
    if (!where) return where.error();
    sockaddr_storage address{};
    const unsigned length = net::to_sockaddr({*any, where->port}, address);
    os::Fd udp(::socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const int off = 0;
    if (udp.valid() && address.ss_family == AF_INET6) {
      ::setsockopt(udp.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    if (udp.valid() && ::bind(udp.get(), reinterpret_cast<sockaddr*>(&address), length) == 0) {
      port = where->port;
      return std::make_pair(std::move(*tcp), std::move(udp));
    }
    last = errno_error(errno, "listening for packets");
  }
  return last;
}

}  // namespace

Result<std::unique_ptr<PeerServer>> PeerServer::start(const std::string& nonce) {
  int port = 0;
  auto both = listen_on_both(port);
  if (!both) return std::move(both).error();
  std::unique_ptr<PeerServer> server(
      new PeerServer(std::move(both->first), std::move(both->second), port, nonce));
  server->tcp_thread_ = std::thread([raw = server.get()] { raw->serve_tcp(); });
  server->udp_thread_ = std::thread([raw = server.get()] { raw->serve_udp(); });
  return server;
}

// shutdown() wakes the threads from their polls.
PeerServer::~PeerServer() {
  stopping_ = true;
  ::shutdown(tcp_.get(), SHUT_RDWR);
  ::shutdown(udp_.get(), SHUT_RDWR);
  tcp_thread_.join();
  udp_thread_.join();
}

void PeerServer::serve_tcp() {
  while (!stopping_) {
    pollfd entry{tcp_.get(), POLLIN, 0};
    // The timeout bounds the destructor's wait where shutdown() does not wake a listener.
    ::poll(&entry, 1, 100);
    if (stopping_) return;
    auto peer = net::accept_tcp(tcp_.get());
    if (peer && *peer) {
      std::thread([fd = std::move((*peer)->fd), nonce = nonce_]() mutable {
        serve_one(std::move(fd), nonce);
      }).detach();
    }
  }
}

void PeerServer::serve_udp() {
  std::vector<char> packet(65'536);
  while (!stopping_) {
    pollfd entry{udp_.get(), POLLIN, 0};
    if (::poll(&entry, 1, 100) <= 0) continue;
    sockaddr_storage from{};
    socklen_t length = sizeof from;
    const ssize_t got = ::recvfrom(udp_.get(), packet.data(), packet.size(), MSG_DONTWAIT,
                                   reinterpret_cast<sockaddr*>(&from), &length);
    // Packets without the word get no answer, so the server cannot be used to reflect traffic.
    if (got < static_cast<ssize_t>(nonce_.size()) ||
        std::string_view(packet.data(), nonce_.size()) != nonce_) {
      continue;
    }
    const auto size = static_cast<std::uint32_t>(got);
    ::sendto(udp_.get(), &size, sizeof size, MSG_DONTWAIT | MSG_NOSIGNAL,
             reinterpret_cast<sockaddr*>(&from), length);
  }
}

Json probe_peer(const Endpoint& where, const std::string& nonce) {
  auto measured = probe_stream(where, nonce);
  if (!measured) {
    Json out;
    out["error"] = measured.error().message;
    return out;
  }
  probe_packets(where, nonce, *measured);
  return *measured;
}

}  // namespace hora::doctor
