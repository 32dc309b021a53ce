// SPDX-License-Identifier: Apache-2.0
// The data that each rank sends to all others when it joins. Both sides run the same version
// (handshake), so the encoding has no optional fields. Every rank gets those of all, in the order
// of the ranks, and each of them as its difference from the one before (WireWriter::texts): so what
// is the same on all ranks comes first, then what is the same on a host.
#include "collectives/runtime/rank_info.h"

#include <algorithm>
#include <map>

#include "collectives/negotiation/wire.h"
#include "collectives/types.h"

namespace hora::collectives {

std::string encode_rank_info(const RankInfo& rank_info) {
  WireWriter out;
  out.varint(rank_info.backends.size());
  for (const std::string& id : rank_info.backends) out.text(id);
  out.varint(rank_info.process_sets.size());
  for (const auto& ranks : rank_info.process_sets) out.integers(ranks);
  out.integers(to_numbers(rank_info.parameters));
  out.integer(rank_info.cache_capacity);
  out.integer(rank_info.deterministic ? 1 : 0);
  out.integer(rank_info.group_fusion ? 1 : 0);
  out.integer(rank_info.stall_warning_s);
  out.integer(rank_info.stall_limit_s);
  out.integer(static_cast<std::int64_t>(rank_info.hierarchical_allreduce));
  out.integer(static_cast<std::int64_t>(rank_info.hierarchical_allgather));
  out.integer(rank_info.local_size);
  out.text(rank_info.hostname);
  out.text(rank_info.machine);
  out.text(rank_info.heartbeat_card);
  out.text(rank_info.host_card);
  out.text(rank_info.hosts_card);
  out.text(rank_info.links_card);
  out.integer(rank_info.local_rank);
  return out.take();
}

Result<RankInfo> decode_rank_info(std::string_view bytes) {
  WireReader in(bytes);
  RankInfo rank_info;
  for (std::uint64_t left = in.varint(); left > 0 && in.ok(); --left) {
    rank_info.backends.push_back(in.text());
  }
  for (std::uint64_t left = in.varint(); left > 0 && in.ok(); --left) {
    rank_info.process_sets.push_back(in.integers<std::int32_t>());
  }
  const auto parameters = from_numbers(in.integers<std::int64_t>());
  rank_info.cache_capacity = in.integer();
  rank_info.deterministic = in.integer() != 0;
  rank_info.group_fusion = in.integer() != 0;
  rank_info.stall_warning_s = in.integer();
  rank_info.stall_limit_s = in.integer();
  rank_info.hierarchical_allreduce = static_cast<Choice>(in.integer());
  rank_info.hierarchical_allgather = static_cast<Choice>(in.integer());
  rank_info.local_size = static_cast<int>(in.integer());
  rank_info.hostname = in.text();
  rank_info.machine = in.text();
  rank_info.heartbeat_card = in.text();
  rank_info.host_card = in.text();
  rank_info.hosts_card = in.text();
  rank_info.links_card = in.text();
  rank_info.local_rank = static_cast<int>(in.integer());
  if (!in.ok() || !parameters)
    return make_error(ErrorCode::kFailed, "malformed rank_info of a rank");
  rank_info.parameters = *parameters;
  return rank_info;
}

std::vector<std::int32_t> number_hosts(const std::vector<RankInfo>& all) {
  std::map<std::string, std::int32_t> numbers;
  std::vector<std::int32_t> hosts;
  for (const RankInfo& each : all) {
    // Numbered in the order of the ranks, so that all ranks give a host the same number.
    const auto next = static_cast<std::int32_t>(numbers.size());
    hosts.push_back(numbers.try_emplace(each.machine, next).first->second);
  }
  return hosts;
}

namespace {

std::string format_sets(const std::vector<std::vector<std::int32_t>>& sets) {
  std::string text;
  for (const auto& ranks : sets) {
    text += format_shape(std::vector<std::int64_t>(ranks.begin(), ranks.end()));
  }
  return text.empty() ? "none" : text;
}

}  // namespace

std::string check_process_sets(const std::vector<RankInfo>& all) {
  const auto& first = all.front().process_sets;
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    // The order counts as well: it decides which number each set gets.
    if (all[rank].process_sets != first) {
      return "the process sets given to init differ: rank 0 has " + format_sets(first) + ", rank " +
             std::to_string(rank) + " has " + format_sets(all[rank].process_sets);
    }
  }
  for (std::size_t i = 0; i < first.size(); ++i) {
    // All ranks have the same list from here on: they find the same mistake and fail with one text.
    std::vector<std::int32_t> ranks = first[i];
    std::sort(ranks.begin(), ranks.end());
    const std::string text = format_shape({ranks.begin(), ranks.end()});
    if (ranks.empty()) return "a process set given to init is empty";
    if (std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end()) {
      return "the process set " + text + " names a rank twice";
    }
    if (ranks.front() < 0 || ranks.back() >= static_cast<std::int32_t>(all.size())) {
      return "the process set " + text + " names a rank that is not in 0.." +
             std::to_string(all.size() - 1);
    }
    for (std::size_t j = 0; j < i; ++j) {
      // Two sets of the same ranks would compete for one name in every table.
      std::vector<std::int32_t> other = first[j];
      std::sort(other.begin(), other.end());
      if (other == ranks) return "the process set " + text + " is given to init twice";
    }
  }
  return {};
}

}  // namespace hora::collectives
