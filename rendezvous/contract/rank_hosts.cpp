// SPDX-License-Identifier: Apache-2.0
// [pure]
#include "rendezvous/contract/rank_hosts.h"

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

}  // namespace hora::rendezvous
