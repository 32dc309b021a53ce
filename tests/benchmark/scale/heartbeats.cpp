// SPDX-License-Identifier: Apache-2.0
// What signs of life cost rank 0: hora-heartbeats RANKS RANKS_PER_HOST ROUNDS [all]
//
// Rank 0 is real. This process plays the ranks that it asks, a socket for each: the leaders of the
// other hosts and the ranks of its own, as in a large job; with `all` every rank, as in a small
// one. They answer in turns with rank 0, with as many bytes as the real ones. Prints one line of
// JSON: the CPU seconds that rank 0 takes for a round of questions and answers, and how many it
// asks.
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "collectives/control/heartbeat.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/limits.h"

using namespace hora;
using namespace hora::collectives;

namespace {

// Of a message (heartbeat.h): the secret, its sender, how many signs, the signs.
constexpr std::size_t kFrom = 8;
constexpr std::size_t kCount = 12;
constexpr std::size_t kSigns = 16;
constexpr std::size_t kSignBytes = 116;
constexpr std::size_t kMostSigns = 12;

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "hora-heartbeats: %s\n", what.c_str());
  std::_Exit(1);
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Played {
  int rank = 0;
  os::Fd socket;
  std::string card;
  std::vector<std::int32_t> speaks_for;
};

Played open_played(int rank, std::vector<std::int32_t> speaks_for) {
  os::Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_storage where{};
  const unsigned length = net::to_sockaddr(Endpoint{*parse_ip_address("127.0.0.1"), 0}, where);
  if (!socket.valid() ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&where), length) != 0) {
    die("opening a socket: " + std::string(std::strerror(errno)));
  }
  const auto endpoint = net::local_endpoint(socket.get());
  if (!endpoint) die(endpoint.error().message);
  return {rank, std::move(socket), std::string(8, '\0') + format_endpoint(*endpoint),
          std::move(speaks_for)};
}

// Every sign is that of the question, as if from the other rank, which waits in set 0.
void answer(const Played& self) {
  char question[kSigns + kMostSigns * kSignBytes];
  sockaddr_storage from{};
  socklen_t length = sizeof from;
  const ssize_t got = ::recvfrom(self.socket.get(), question, sizeof question, MSG_DONTWAIT,
                                 reinterpret_cast<sockaddr*>(&from), &length);
  if (got != static_cast<ssize_t>(kSigns + kSignBytes)) die("this is not a question of rank 0");
  std::string sign(question + kSigns, kSignBytes);
  sign.replace(sizeof(std::int32_t), sizeof(std::int32_t), sizeof(std::int32_t), '\0');
  for (std::size_t at = 0; at < self.speaks_for.size(); at += kMostSigns) {
    const auto count = static_cast<std::int32_t>(std::min(kMostSigns, self.speaks_for.size() - at));
    std::string message(question, kSigns);
    std::memcpy(message.data() + kFrom, &self.rank, sizeof self.rank);
    std::memcpy(message.data() + kCount, &count, sizeof count);
    for (std::int32_t i = 0; i < count; ++i) {
      message += sign;
      const std::int32_t rank = self.speaks_for[at + static_cast<std::size_t>(i)];
      std::memcpy(message.data() + message.size() - kSignBytes, &rank, sizeof rank);
    }
    if (::sendto(self.socket.get(), message.data(), message.size(), 0,
                 reinterpret_cast<const sockaddr*>(&from), length) < 0) {
      die("answering: " + std::string(std::strerror(errno)));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 3 ? std::atoi(argv[1]) : 0;
  const int per_host = argc > 3 ? std::atoi(argv[2]) : 0;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 0;
  const bool all = argc > 4 && std::strcmp(argv[4], "all") == 0;
  if (ranks < 2 || per_host < 1 || rounds < 1) {
    std::fprintf(stderr, "usage: hora-heartbeats RANKS RANKS_PER_HOST ROUNDS [all]\n");
    return 2;
  }
  os::raise_file_limit(static_cast<std::size_t>(ranks) + 64);
  auto rank_0 = Heartbeat::open("127.0.0.1", 0);
  if (!rank_0) die(rank_0.error().message);
  std::vector<std::int32_t> hosts;
  for (int rank = 0; rank < ranks; ++rank) hosts.push_back(rank / per_host);
  const std::vector<int> askers = all ? std::vector<int>(hosts.size()) : find_askers(hosts);
  std::vector<Played> played;
  std::vector<std::string> cards{rank_0->card()};
  // Ranks that rank 0 does not ask have an address, too, without a process.
  for (int rank = 1; rank < ranks; ++rank) {
    if (askers[static_cast<std::size_t>(rank)] != 0) {
      cards.push_back(std::string(8, '\0') + "127.0.0.1:9");
      played.back().speaks_for.push_back(rank);
      continue;
    }
    played.push_back(open_played(rank, {rank}));
    cards.push_back(played.back().card);
  }
  const auto begun = Clock::now();
  if (const Status met = rank_0->bootstrap(cards, false, askers); !met) die(met.error().message);
  double cpu = 0;
  // The first questions are those of the bootstrap.
  for (int round = 0; round <= rounds; ++round) {
    double before = cpu_seconds();
    if (round > 0) rank_0->ask(Clock::now());
    double took = cpu_seconds() - before;
    for (std::size_t i = 0; i < played.size(); ++i) {
      answer(played[i]);
      // Before the socket of rank 0 is full.
      if (i % 32 != 31 && i + 1 < played.size()) continue;
      before = cpu_seconds();
      rank_0->receive(Clock::now(), {});
      took += cpu_seconds() - before;
    }
    if (round > 0) cpu += took;
  }
  if (rank_0->waits(begun).size() != hosts.size() - 1)
    die("rank 0 has not received the answers of all");
  const nlohmann::ordered_json out = {
      {"ranks", ranks}, {"asked", played.size()}, {"cpu_s", cpu / rounds}};
  std::printf("%s\n", out.dump().c_str());
  return 0;
}
