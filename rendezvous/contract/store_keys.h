// SPDX-License-Identifier: Apache-2.0
// Keys of the rendezvous store, and the list of the ranks' hosts.  [pure]
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hora::rendezvous {

// Which ranks run on which host: what the launcher leaves in the store for messages that name ranks
// which have not come.
//   GET hora_control/hosts
//       a line for each host: its name, and its ranks as runs ("node2 4-7 12")

inline constexpr std::string_view kRankHostsKey = "hosts";  // in scope::kControl

struct RanksOfHost {
  std::string host;
  std::vector<int> ranks;
};

std::string encode_rank_hosts(const std::vector<RanksOfHost>& hosts);
// "rank 2 on node1, ranks 4, 5 on node2". Of ranks that the text does not have, nothing; `ranks` in
// rising order.
std::string name_hosts_of(std::string_view text, const std::vector<int>& ranks);

// The names under which the processes of a job meet in the store.
// A scope is one meeting of n processes; the names are those that Horovod's Gloo workers use.

namespace scope {
inline constexpr std::string_view kGlobal = "global";
inline constexpr std::string_view kLocalPrefix = "local_";         // + host name
inline constexpr std::string_view kCrossPrefix = "cross_";         // + local rank
inline constexpr std::string_view kRankAndSize = "rank_and_size";  // elastic: slot of a worker
inline constexpr std::string_view kWorkerAddresses =
    "worker_addresses";                                            // elastic: the worker to notify
inline constexpr std::string_view kControl = "hora_control";       // where rank 0 of our runtime is
inline constexpr std::string_view kElasticPlace = "hora_elastic";  // our own elastic workers
}  // namespace scope

std::string local_scope(std::string_view hostname);
std::string cross_scope(int local_rank);
std::string rank_key(int index);  // "3": the addresses of process 3

// A scope with the number of processes that use it: when as many have said that they are done, the
// server frees its values.
struct ScopeSize {
  std::string scope;
  int size = 0;
  friend bool operator==(const ScopeSize&, const ScopeSize&) = default;
};

struct HostRanks {
  std::string hostname;
  int local_size = 0;
};

// The scopes of a job that runs `local_size` ranks on each host: global, local_*, cross_*.
std::vector<ScopeSize> known_scopes(const std::vector<HostRanks>& hosts);

}  // namespace hora::rendezvous
