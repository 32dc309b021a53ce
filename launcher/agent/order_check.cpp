// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/order_check.h"

#include <set>

#include "launcher/failures/failure_code.h"

namespace hora::launcher {

Failure protocol_failure(const std::string& what) {
  return {std::string(failure::kProtocol), "its agent received " + what, ""};
}

// The order comes from the launcher, but a damaged or newer one must not make the agent index out
// of range or run without a lease.

Status check_order(const HostOrder& order) {
  // Milliseconds; a shorter lease would expire between two heartbeats.
  constexpr std::int64_t kShortestLease = 50;
  constexpr std::int64_t kLongest = 365LL * 24 * 3600 * 1000;  // of an option
  std::set<int> ranks;
  for (const RankOrder& rank : order.ranks) {
    if (rank.rank < 0 || !ranks.insert(rank.rank).second) {
      return make_error(ErrorCode::kUsage,
                        "an order with rank " + std::to_string(rank.rank) + " twice");
    }
  }
  if (order.lease_ms < kShortestLease || order.lease_ms > kLongest || order.grace_ms < 0 ||
      order.grace_ms > kLongest || order.output_window_bytes < 1) {
    return make_error(ErrorCode::kUsage, "an order with a lease, grace or window out of range");
  }
  // The search for a rank's program relies on the order.
  int before = 0;
  for (const ProgramOrder& program : order.more_programs) {
    if (program.first_rank <= before) {
      return make_error(ErrorCode::kUsage, "an order whose programs are not in the order of ranks");
    }
    before = program.first_rank;
  }
  const auto hosts = static_cast<int>(order.pmi_hosts.size());
  if (!order.pmi.empty() && order.pmi != "pmix" && order.pmi != "pmi1") {
    return make_error(ErrorCode::kUsage, "an order for a kind of PMI that is unknown");
  }
  if (!order.pmi.empty() && (order.pmi_host < 0 || order.pmi_host >= hosts)) {
    return make_error(ErrorCode::kUsage, "an order whose host is not among those served by PMI");
  }
  return Ok{};
}

}  // namespace hora::launcher
