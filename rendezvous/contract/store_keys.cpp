// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/contract/store_keys.h"

#include <algorithm>

#include "rendezvous/base/text.h"

namespace hora::rendezvous {

namespace {

// A run is "4-7", or a single rank. Anything else holds none.
bool is_within(std::string_view run, int rank) {
  const std::size_t dash = run.find('-');
  const auto first = parse_int<int>(run.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : parse_int<int>(run.substr(dash + 1));
  return first && last && *first <= rank && rank <= *last;
}

}  // namespace

std::string encode_rank_hosts(const std::vector<RanksOfHost>& hosts) {
  std::string text;
  for (const RanksOfHost& each : hosts) {
    std::vector<int> ranks = each.ranks;
    std::sort(ranks.begin(), ranks.end());
    text += each.host;
    for (std::size_t i = 0; i < ranks.size();) {
      std::size_t end = i + 1;
      while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
      text += " " + std::to_string(ranks[i]);
      if (end - i > 1) text += "-" + std::to_string(ranks[end - 1]);
      i = end;
    }
    text += "\n";
  }
  return text;
}

std::string name_hosts_of(std::string_view text, const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (const std::string_view line : split(text, '\n')) {
    const std::vector<std::string_view> words = split(line, ' ');
    std::vector<std::string> here;
    for (const int rank : ranks) {
      const bool found = std::any_of(words.begin() + 1, words.end(),
                                     [&](std::string_view run) { return is_within(run, rank); });
      if (found) here.push_back(std::to_string(rank));
    }
    if (here.empty()) continue;
    parts.push_back((here.size() == 1 ? "rank " : "ranks ") + join(here, ", ") + " on " +
                    std::string(words.front()));
  }
  return join(parts, ", ");
}

// The names and their sizes follow from the host list alone, so launcher and workers agree on them
// without talking.

std::string local_scope(std::string_view hostname) {
  return std::string(scope::kLocalPrefix) + std::string(hostname);
}

std::string cross_scope(int local_rank) {
  return std::string(scope::kCrossPrefix) + std::to_string(local_rank);
}

std::string rank_key(int index) { return std::to_string(index); }

// Horovod's workers meet three times: all of them, those of a host, and those of a local rank.
std::vector<ScopeSize> known_scopes(const std::vector<HostRanks>& hosts) {
  std::vector<ScopeSize> scopes;
  int world = 0;
  int widest = 0;
  for (const HostRanks& host : hosts) {
    world += host.local_size;
    widest = std::max(widest, host.local_size);
  }
  scopes.push_back({std::string(scope::kGlobal), world});
  for (const HostRanks& host : hosts) {
    scopes.push_back({local_scope(host.hostname), host.local_size});
  }
  // A cross scope holds one rank per host; hosts with fewer ranks have none in the higher ones.
  for (int local_rank = 0; local_rank < widest; ++local_rank) {
    const auto reach = std::count_if(hosts.begin(), hosts.end(), [&](const HostRanks& host) {
      return host.local_size > local_rank;
    });
    scopes.push_back({cross_scope(local_rank), static_cast<int>(reach)});
  }
  return scopes;
}

}  // namespace hora::rendezvous
