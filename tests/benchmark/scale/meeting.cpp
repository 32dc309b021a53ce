// SPDX-License-Identifier: Apache-2.0
// What it costs rank 0 to meet all other ranks: hora-meeting RANKS RANKS_PER_HOST [full-mesh]
//
// This process is rank 0, with the real door and the real exchanges: the meeting itself, the three
// rounds that connect the leaders of the hosts (hosts_bootstrap.cpp), and the two of Gloo
// (gloo_backend.cpp): full-mesh is how that was done once, with an address for each pair of ranks.
// A child plays all other ranks in one thread: it proves itself, gives its parts, and drops what it
// is sent. Prints one line of JSON: wall and CPU seconds by phase, the bytes that rank 0 sent, its
// memory.
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "collectives/control/frame_buffer.h"
#include "collectives/control/handshake.h"
#include "collectives/control/messages.h"
#include "collectives/control/oob_allgather.h"
#include "collectives/control/tcp_control.h"
#include "collectives/negotiation/wire.h"
#include "collectives/runtime/rank_info.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/file_limit.h"

using namespace hora;
using namespace hora::collectives;

namespace {

constexpr std::chrono::minutes kPatience{10};
constexpr const char* kRoundNames[] = {"cards", "vote", "second_vote", "gloo", "gloo_vote"};
constexpr int kRounds = std::size(kRoundNames);
constexpr int kGlooRound = 3;
constexpr std::size_t kSocketBytes = 16;   // sockaddr_in
constexpr std::size_t kRecordBytes = 136;  // an address of Gloo with its length
constexpr const char* kToken = "the token of this job";
constexpr int kPortsPerAddress = 20'000;

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "hora-meeting: %s\n", what.c_str());
  std::_Exit(1);
}

std::string address_of(int host, int rank) {
  return "10." + std::to_string(128 + (host >> 16)) + "." + std::to_string((host >> 8) & 255) +
         "." + std::to_string(host & 255) + ":" + std::to_string(32'768 + rank * 7'919 % 28'000);
}

std::string own_rank_info(int rank, int ranks_per_host) {
  const int host = rank / ranks_per_host;
  RankInfo info;
  info.hostname = "worker-" + std::to_string(host) + ".cluster.example";
  char machine[64];
  std::snprintf(machine, sizeof machine, "%08x-0000-4000-8000-%012d", host * 2654435761u, host);
  info.machine = machine;
  info.local_rank = rank % ranks_per_host;
  info.local_size = ranks_per_host;
  info.backends = {"shm", "gloo", "mpi", "pair"};
  info.heartbeat_card = std::string(8, '\0') + address_of(rank / ranks_per_host, rank);
  return encode_rank_info(info);
}

// The size of the world when each rank gives an address to each other one, else 0.
int full_mesh = 0;

std::string bytes_of_socket(int host, int rank) {
  sockaddr_in socket{};
  socket.sin_family = AF_INET;
  socket.sin_port = htons(static_cast<std::uint16_t>(32'768 + rank * 7'919 % 28'000));
  socket.sin_addr.s_addr = htonl(0x0A800000u + static_cast<unsigned>(host));
  return {reinterpret_cast<const char*>(&socket), sizeof socket};
}

// What a rank gives in round `round`: its card, votes without an objection, and where it listens.
std::vector<std::string> parts_of(int rank, int ranks_per_host, int round) {
  if (round == kGlooRound) {
    const std::string socket = bytes_of_socket(rank / ranks_per_host, rank);
    if (full_mesh == 0) return {socket};
    std::vector<std::string> records;
    for (int peer = 0; peer < full_mesh; ++peer) {
      std::string& record = records.emplace_back(kRecordBytes, '\0');
      record.replace(4, socket.size(), socket);
      std::memcpy(record.data() + kRecordBytes - sizeof peer, &peer, sizeof peer);
    }
    return records;
  }
  if (round > 0) return {""};
  const bool leads = rank % ranks_per_host == 0;
  WireWriter out;
  out.text(leads ? address_of(rank / ranks_per_host, rank) : "");
  out.text("");
  return {out.take()};
}

// --- all other ranks -----------------------------------------------------------------------------

struct Rank {
  os::Fd socket;
  std::string head;           // what has come of a message that is kept
  std::uint64_t to_drop = 0;  // bytes of a message that is not
  int heard = 0;              // messages
};

class Crowd {
 public:
  Crowd(const Endpoint& where, int size, int ranks_per_host)
      : where_(where), size_(size), per_host_(ranks_per_host), epoll_(epoll_create1(0)) {}

  void run() {
    ranks_.resize(static_cast<std::size_t>(size_));
    int left = size_ - 1;
    // No more at once than a listener queues: the next connects when one has been challenged.
    int next = 1;
    for (; next < size_ && next <= 512; ++next) connect(next);
    epoll_event events[256];
    while (left > 0) {
      const int count = epoll_wait(epoll_.get(), events, 256, 600'000);
      if (count == 0) die("no word from rank 0 for ten minutes");
      for (int i = 0; i < count; ++i) {
        const int rank = static_cast<int>(events[i].data.u32);
        const int before = at(rank).heard;
        read_some(rank);
        if (before == 0 && at(rank).heard > 0 && next < size_) connect(next++);
        if (before < 2 + kRounds && at(rank).heard == 2 + kRounds) --left;
      }
    }
  }

 private:
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  void connect(int rank) {
    os::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket.valid()) die("socket: " + std::string(std::strerror(errno)));
    // One address has too few ports for all.
    sockaddr_in from{};
    from.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(0x7F000001u + static_cast<unsigned>(rank / kPortsPerAddress) + 1);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(0x7F000001u);
    to.sin_port = htons(where_.port);
    if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&from), sizeof from) != 0 ||
        ::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) {
      die("connecting rank " + std::to_string(rank) + ": " + std::strerror(errno));
    }
    WireWriter hello;
    hello.u8(1);
    hello.text("hora control");
    hello.varint(2);
    hello.text("job");
    hello.integer(rank);
    hello.integer(size_);
    hello.text(kNonce);
    say(socket, hello.take());
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = static_cast<std::uint32_t>(rank);
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event);
    at(rank).socket = std::move(socket);
  }

  static void say(const os::Fd& socket, std::string_view message) {
    std::string frame;
    append_frame(frame, message);
    if (::send(socket.get(), frame.data(), frame.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(frame.size())) {
      die("a rank could not send");
    }
  }

  void read_some(int rank) {
    static char buffer[1 << 18];
    const ssize_t count = ::recv(at(rank).socket.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) die("rank 0 closed the connection of rank " + std::to_string(rank));
    std::string_view bytes(buffer, static_cast<std::size_t>(count));
    Rank& self = at(rank);
    while (!bytes.empty()) {
      if (self.to_drop > 0) {
        const std::size_t dropped = std::min<std::uint64_t>(self.to_drop, bytes.size());
        bytes.remove_prefix(dropped);
        self.to_drop -= dropped;
        if (self.to_drop == 0) finish(rank, "");
        continue;
      }
      self.head.push_back(bytes.front());
      bytes.remove_prefix(1);
      if (self.head.size() < 4) continue;
      const std::uint32_t length = load_u32(self.head.data());
      if (self.heard > 0) {  // only the challenge is of interest
        self.head.clear();
        self.to_drop = length;
      } else if (self.head.size() == 4 + length) {
        finish(rank, std::string_view(std::exchange(self.head, {})).substr(4));
      }
    }
  }

  void finish(int rank, std::string_view message) {
    const int heard = at(rank).heard++;
    if (heard == 0) return prove(rank, message);
    if (heard - 1 == kRounds) return;
    WireWriter out;
    out.u8(static_cast<std::uint8_t>(ControlMessage::kExchange));
    out.varint(0);
    out.varint(static_cast<std::uint64_t>(heard - 1));
    out.texts(parts_of(rank, per_host_, heard - 1));
    say(at(rank).socket, out.take());
  }

  void prove(int rank, std::string_view challenge) {
    WireReader in(challenge);
    if (in.u8() != 2) die("rank 0 refused rank " + std::to_string(rank));
    const std::string nonce = in.text();
    WireWriter out;
    out.u8(3);
    out.text(handshake_proof(kToken, "worker", kNonce, nonce, rank));
    out.text(own_rank_info(rank, per_host_));
    say(at(rank).socket, out.take());
  }

  static constexpr std::string_view kNonce = "sixteen bytes ok";
  Endpoint where_;
  int size_;
  int per_host_;
  os::Fd epoll_;
  std::vector<Rank> ranks_;
};

// --- rank 0 --------------------------------------------------------------------------------------

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

class Stopwatch {
 public:
  nlohmann::ordered_json lap() {
    const auto now = Clock::now();
    const double cpu = cpu_seconds();
    nlohmann::ordered_json out = {{"wall_s", std::chrono::duration<double>(now - began_).count()},
                                  {"cpu_s", cpu - cpu_}};
    began_ = now;
    cpu_ = cpu;
    return out;
  }

 private:
  Clock::time_point began_ = Clock::now();
  double cpu_ = cpu_seconds();
};

std::uint64_t bytes_sent(const ControlChannel& channel) {
  std::uint64_t sum = 0;
  for (const int fd : channel.liveness_fds()) {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) die("TCP_INFO");
    sum += info.tcpi_bytes_sent;
  }
  return sum;
}

void be_rank_0(os::Fd listener, int size, int ranks_per_host, pid_t crowd) {
  Stopwatch watch;
  nlohmann::ordered_json out = {{"ranks", size}};
  const ControlIdentity self{0, size, "job", kToken, own_rank_info(0, ranks_per_host)};
  auto world = gather_workers(std::move(listener), self, Clock::now() + kPatience);
  if (!world) die(world.error().message);
  out["meeting"] = watch.lap();
  OobAllgather oob(*world->channel, 0);
  std::vector<std::int32_t> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  for (int round = 0; round < kRounds; ++round) {
    auto parts = oob.exchange(0, all, parts_of(0, ranks_per_host, round), Clock::now() + kPatience);
    if (!parts) die(parts.error().message);
    if ((*parts)[static_cast<std::size_t>(size) - 1] !=
        parts_of(size - 1, ranks_per_host, round)[0]) {
      die("the parts were mixed up");
    }
    if (const Status sent = world->channel->flush(-1, Clock::now() + kPatience); !sent) {
      die(sent.error().message);
    }
    out[kRoundNames[round]] = watch.lap();
  }
  int status = 0;
  if (::waitpid(crowd, &status, 0) != crowd || status != 0) die("the other ranks failed");
  out["bytes_sent"] = bytes_sent(*world->channel);
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  out["cpu_s"] = cpu_seconds();
  out["max_rss_mib"] = static_cast<double>(usage.ru_maxrss) / 1024;
  std::printf("%s\n", out.dump().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const int size = argc > 2 ? std::atoi(argv[1]) : 0;
  const int ranks_per_host = argc > 2 ? std::atoi(argv[2]) : 0;
  const bool mesh = argc == 4 && std::strcmp(argv[3], "full-mesh") == 0;
  if (size < 2 || ranks_per_host < 1 || argc != (mesh ? 4 : 3)) {
    std::fprintf(stderr, "usage: hora-meeting RANKS RANKS_PER_HOST [full-mesh]\n");
    return 2;
  }
  if (mesh) full_mesh = size;
  if (os::raise_file_limit() < static_cast<std::size_t>(size) + 64) die("too few descriptors");
  auto listener = open_control_listener(*parse_ip_address("127.0.0.1"));
  if (!listener) die(listener.error().message);
  const auto where = net::local_endpoint(listener->get());
  if (!where) die(where.error().message);
  const pid_t crowd = ::fork();
  if (crowd < 0) die("fork");
  if (crowd == 0) {
    listener->reset();
    Crowd(*where, size, ranks_per_host).run();
    std::_Exit(0);
  }
  be_rank_0(std::move(*listener), size, ranks_per_host, crowd);
}
