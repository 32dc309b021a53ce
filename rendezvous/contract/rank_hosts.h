// SPDX-License-Identifier: Apache-2.0
// Which ranks run on which host: what the launcher leaves in the store for messages that name ranks
// which have not come.  [pure]
//
//   GET hora_control/hosts
//       a line for each host: its name, and its ranks as runs ("node2 4-7 12")
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hora::rendezvous {

inline constexpr std::string_view kRankHostsKey = "hosts";  // in scope::kControl

struct RanksOfHost {
  std::string host;
  std::vector<int> ranks;
};

std::string encode_rank_hosts(const std::vector<RanksOfHost>& hosts);
// "rank 2 on node1, ranks 4, 5 on node2". Of ranks that the text does not have, nothing; `ranks` in
// rising order.
std::string name_hosts_of(std::string_view text, const std::vector<int>& ranks);

}  // namespace hora::rendezvous
