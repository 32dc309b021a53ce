// SPDX-License-Identifier: Apache-2.0
// What it costs rank 0 to meet all other ranks: hora-meeting RANKS RANKS_PER_HOST [star|full-mesh]
//
// This process is rank 0, with the real door, the real tree node and the real exchanges: the
// meeting itself, the three rounds that connect the leaders of the hosts (hosts_channel.cpp), and
// the two of Gloo (gloo_backend.cpp); then some negotiations of one operation, in which all ranks
// ask for it by its number and get one response. `star`: each rank has a connection to rank 0, as
// in small jobs. full-mesh is a star, and how the rounds of Gloo were done once, with an address
// for each pair of ranks. A child plays all other ranks in one thread, or all tree nodes directly
// below rank 0 with the ranks behind them: it proves itself, gives its parts, and drops what it is
// sent. Prints one line of JSON: wall and CPU seconds by phase, the bytes and the connections of
// rank 0, its memory.
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
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "collectives/control/door.h"
#include "collectives/control/frame_buffer.h"
#include "collectives/control/messages.h"
#include "collectives/control/oob_allgather.h"
#include "collectives/control/tcp_control.h"
#include "collectives/control/tree_frames.h"
#include "collectives/negotiation/coordinator.h"
#include "collectives/negotiation/sequence.h"
#include "collectives/negotiation/wire.h"
#include "collectives/runtime/rank_info.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/limits.h"

using namespace hora;
using namespace hora::collectives;

namespace {

constexpr std::chrono::minutes kTimeout{10};
constexpr const char* kRoundNames[] = {"cards", "vote", "second_vote", "gloo", "gloo_vote"};
constexpr int kRounds = std::size(kRoundNames);
constexpr int kSteps = 20;      // negotiations
constexpr int kListening = 10;  // TCP_LISTEN, which only the header of the C library names
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

// A request for an operation that has a number.
std::string request() {
  ItemWriter wish;
  wish.by_number({0, 1});
  return control_message(ControlMessage::kRequests, wish.take());
}

std::string exchange_part(int rank, int ranks_per_host, int round) {
  WireWriter out;
  out.u8(static_cast<std::uint8_t>(ControlMessage::kExchange));
  out.varint(0);
  out.varint(static_cast<std::uint64_t>(round));
  out.texts(parts_of(rank, ranks_per_host, round));
  return out.take();
}

// The ranks that the child plays: each connection, and the ranks that speak on it, the first of
// which authenticates. In a tree these are the ranks of rank 0's host and the leaders directly
// below it (control/tree_node.h).
std::vector<Ranks> connections_of(int size, int ranks_per_host, bool star) {
  std::vector<Ranks> all;
  std::map<int, std::size_t> by_host;  // below rank 0
  for (int rank = 1; rank < size; ++rank) {
    int host = rank / ranks_per_host;
    if (star || host == 0) {
      all.push_back({rank});
      continue;
    }
    while (host_above(host) != 0) host = host_above(host);
    const auto [at, fresh] = by_host.emplace(host, all.size());
    if (fresh) all.emplace_back();
    all[at->second].push_back(rank);
  }
  return all;
}

// --- all other ranks -----------------------------------------------------------------------------

struct Connection {
  Ranks ranks;  // the first one is at the other end
  os::Fd socket;
  std::string head;           // what has come of a message that is kept
  std::uint64_t to_drop = 0;  // bytes of a message that is not
  int received = 0;           // messages
};

class Crowd {
 public:
  Crowd(const Endpoint& where, int size, int ranks_per_host, bool star)
      : where_(where),
        size_(size),
        per_host_(ranks_per_host),
        epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    for (Ranks& ranks : connections_of(size, ranks_per_host, star)) {
      connections_.emplace_back().ranks = std::move(ranks);
    }
  }

  void run() {
    std::size_t left = connections_.size();
    // No more at once than a listener queues: the next connects when one has been challenged.
    std::size_t next = 0;
    for (; next < connections_.size() && next < 512; ++next) connect(next);
    epoll_event events[256];
    while (left > 0) {
      const int count = epoll_wait(epoll_.get(), events, 256, 600'000);
      if (count == 0) die("no word from rank 0 for ten minutes");
      for (int i = 0; i < count; ++i) {
        Connection& each = connections_[events[i].data.u32];
        const int before = each.received;
        read_some(each);
        if (before == 0 && each.received > 0 && next < connections_.size()) connect(next++);
        constexpr int kAll = 2 + kRounds + kSteps;
        if (before < kAll && each.received == kAll) --left;
      }
    }
  }

 private:
  void connect(std::size_t number) {
    Connection& self = connections_[number];
    os::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket.valid()) die("socket: " + std::string(std::strerror(errno)));
    // One address has too few ports for all.
    sockaddr_in from{};
    from.sin_family = AF_INET;
    from.sin_addr.s_addr =
        htonl(0x7F000001u + static_cast<unsigned>(self.ranks[0] / kPortsPerAddress) + 1);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(0x7F000001u);
    to.sin_port = htons(where_.port);
    if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&from), sizeof from) != 0 ||
        ::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) {
      die("connecting rank " + std::to_string(self.ranks[0]) + ": " + std::strerror(errno));
    }
    self.socket = std::move(socket);
    WireWriter hello;
    hello.u8(meeting::kHello);
    hello.text(meeting::kMagic);
    hello.varint(meeting::kProtocolVersion);
    hello.text("job");
    hello.integer(self.ranks[0]);
    hello.integer(size_);
    hello.text(kNonce);
    hello.u8(self.ranks.size() > 1 ? 1 : 0);
    say(self, hello.take());
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = static_cast<std::uint32_t>(number);
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, self.socket.get(), &event);
  }

  static void say(const Connection& self, std::string_view message) {
    std::string frame;
    append_frame(frame, message);
    if (const Status sent = net::send_all(self.socket.get(), frame, Clock::now() + kTimeout);
        !sent) {
      die("a rank could not send: " + sent.error().message);
    }
  }

  void read_some(Connection& self) {
    static char buffer[1 << 18];
    const ssize_t count = ::recv(self.socket.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) die("rank 0 closed the connection of rank " + std::to_string(self.ranks[0]));
    std::string_view bytes(buffer, static_cast<std::size_t>(count));
    while (!bytes.empty()) {
      if (self.to_drop > 0) {
        const std::size_t dropped = std::min<std::uint64_t>(self.to_drop, bytes.size());
        bytes.remove_prefix(dropped);
        self.to_drop -= dropped;
        if (self.to_drop == 0) finish(self, "");
        continue;
      }
      self.head.push_back(bytes.front());
      bytes.remove_prefix(1);
      if (self.head.size() < 4) continue;
      const std::uint32_t length = load_u32(self.head.data());
      if (self.received > 0) {  // only the challenge is of interest
        self.head.clear();
        self.to_drop = length;
      } else if (self.head.size() == 4 + length) {
        finish(self, std::string_view(std::exchange(self.head, {})).substr(4));
      }
    }
  }

  void finish(Connection& self, std::string_view message) {
    const int received = self.received++;
    if (received == 0) return prove(self, message);
    if (received - 1 < kRounds) {
      speak(self, [&](int rank) { return exchange_part(rank, per_host_, received - 1); });
    } else if (received - 1 - kRounds < kSteps) {
      speak(self, [](int) { return request(); });
    }
  }

  template <typename Text>
  static void speak(const Connection& self, const Text& text) {
    if (self.ranks.size() == 1) return say(self, text(self.ranks[0]));
    WordCollector words;
    for (const int rank : self.ranks) words.add({Word::kSaid, {rank}, text(rank)});
    say(self, words.take());
  }

  void prove(const Connection& self, std::string_view challenge) {
    WireReader in(challenge);
    if (in.u8() != meeting::kChallenge) {
      die("rank 0 refused rank " + std::to_string(self.ranks[0]));
    }
    const std::string nonce = in.text();
    WireWriter out;
    out.u8(meeting::kProof);
    out.text(handshake_proof(kToken, "worker", kNonce, nonce, self.ranks[0]));
    out.text(own_rank_info(self.ranks[0], per_host_));
    say(self, out.take());
    if (self.ranks.size() == 1) return;
    WordCollector words;
    for (const int rank : self.ranks) {
      if (rank != self.ranks[0]) words.add({Word::kJoined, {rank}, own_rank_info(rank, per_host_)});
    }
    say(self, words.take());
  }

  static constexpr std::string_view kNonce = "sixteen bytes ok";
  Endpoint where_;
  int size_;
  int per_host_;
  os::Fd epoll_;
  std::vector<Connection> connections_;
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

// Of all connections of this process.
void count_connections(nlohmann::ordered_json& out) {
  std::uint64_t bytes = 0;
  int connections = 0;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    tcp_info info{};
    socklen_t size = sizeof info;
    const int fd = std::atoi(each.path().filename().c_str());
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;  // another kind
    if (info.tcpi_state == kListening) continue;
    bytes += info.tcpi_bytes_sent;
    ++connections;
  }
  out["bytes_sent"] = bytes;
  out["connections"] = connections;
}

// As the Negotiator does: counts the ranks that have asked for it, and answers all at once.
void negotiate(ControlChannel& channel, const std::vector<std::int32_t>& others) {
  Response known;
  known.agreed.name = "gradient";
  known.agreed.action = Action::kAllreduce;
  ItemWriter items;
  items.by_number({0, 1});
  const std::string response = control_message(ControlMessage::kResponses, items.take());
  Coordinator coordinator(static_cast<int>(others.size()) + 1);
  for (int step = 0; step < kSteps; ++step) {
    const auto now = Clock::now();
    if (!coordinator.add_known(0, 1, known, now)) die("an unknown number");
    std::vector<Coordinator::Ready> ready;
    while ((ready = coordinator.take_ready()).empty()) {
      for (const Incoming& each : channel.poll(Clock::now() + kTimeout)) {
        ItemReader in(std::string_view(each.bytes).substr(1));
        if (each.gone || in.next() != ItemReader::Next::kByNumber) die("no request");
        if (!coordinator.add_known(each.rank, in.reference().id, known, now)) die("not counted");
      }
    }
    channel.send_to_all(others, response);
    if (const Status sent = channel.flush(-1, Clock::now() + kTimeout); !sent) {
      die(sent.error().message);
    }
  }
}

void be_rank_0(os::Fd listener, int size, int ranks_per_host, bool star, pid_t crowd) {
  Stopwatch watch;
  nlohmann::ordered_json out = {{"ranks", size}};
  const ControlIdentity self{0, size, "job", kToken, own_rank_info(0, ranks_per_host)};
  const auto gather = star ? gather_workers : gather_tree;
  auto world = gather(std::move(listener), self, Clock::now() + kTimeout, {});
  if (!world) die(world.error().message);
  out["meeting"] = watch.lap();
  OobAllgather oob(*world->channel, 0);
  std::vector<std::int32_t> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  for (int round = 0; round < kRounds; ++round) {
    auto parts = oob.exchange(0, all, parts_of(0, ranks_per_host, round), Clock::now() + kTimeout);
    if (!parts) die(parts.error().message);
    if ((*parts)[static_cast<std::size_t>(size) - 1] !=
        parts_of(size - 1, ranks_per_host, round)[0]) {
      die("the parts were mixed up");
    }
    if (const Status sent = world->channel->flush(-1, Clock::now() + kTimeout); !sent) {
      die(sent.error().message);
    }
    out[kRoundNames[round]] = watch.lap();
  }
  negotiate(*world->channel, {all.begin() + 1, all.end()});
  out["steps"] = watch.lap();
  count_connections(out);
  int status = 0;
  if (::waitpid(crowd, &status, 0) != crowd || status != 0) die("the other ranks failed");
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
  const bool star = mesh || (argc == 4 && std::strcmp(argv[3], "star") == 0);
  if (size < 2 || ranks_per_host < 1 || argc != (star ? 4 : 3)) {
    std::fprintf(stderr, "usage: hora-meeting RANKS RANKS_PER_HOST [star|full-mesh]\n");
    return 2;
  }
  if (mesh) full_mesh = size;
  const std::size_t connections = connections_of(size, ranks_per_host, star).size();
  if (os::raise_file_limit() < connections + 64) die("too few descriptors");
  auto listener = open_control_listener(*parse_ip_address("127.0.0.1"));
  if (!listener) die(listener.error().message);
  const auto where = net::local_endpoint(listener->get());
  if (!where) die(where.error().message);
  const pid_t crowd = ::fork();
  if (crowd < 0) die("fork");
  if (crowd == 0) {
    listener->reset();
    Crowd(*where, size, ranks_per_host, star).run();
    std::_Exit(0);
  }
  be_rank_0(std::move(*listener), size, ranks_per_host, star, crowd);
}
