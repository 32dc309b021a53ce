// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/rank_processes.h"

#include <unistd.h>

#include <string>

#include "launcher/process/process_table.h"
#include "rendezvous/contract/worker_env.h"

namespace hora::launcher {

namespace {

// Parents are read one by one while processes come and go, which may make a circle of them.
constexpr int kMostAncestors = 1'000;

int rank_with(pid_t pid, const std::vector<RankProcess>& ranks) {
  for (const RankProcess& rank : ranks) {
    if (rank.pid > 0 && rank.pid == pid) return rank.rank;
  }
  return -1;
}

int rank_by_kinship(pid_t pid, const std::vector<RankProcess>& ranks) {
  for (int i = 0; i < kMostAncestors && pid > 1 && pid != ::getpid(); ++i) {
    if (const int rank = rank_with(pid, ranks); rank >= 0) return rank;
    const auto process = read_process(pid);
    if (!process) return -1;
    for (const pid_t led : {process->group, process->session}) {
      if (const int rank = rank_with(led, ranks); rank >= 0) return rank;
    }
    pid = process->parent;
  }
  return -1;
}

}  // namespace

int rank_of_process(pid_t pid, const std::vector<RankProcess>& ranks, std::string_view mark) {
  if (const int rank = rank_by_kinship(pid, ranks); rank >= 0) return rank;
  if (!mark.empty() && !environment_has(pid, mark)) return -1;
  for (const RankProcess& rank : ranks) {
    const std::string own = std::string(rendezvous::env::kRank) + "=" + std::to_string(rank.rank);
    if (environment_has(pid, own)) return rank.rank;
  }
  return -1;
}

}  // namespace hora::launcher
