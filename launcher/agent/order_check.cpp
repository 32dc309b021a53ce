// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/order_check.h"
#include <variant>
#include "launcher/failures/failure_code.h"
#include <set>

namespace hora::launcher {

// One place for all of it, so that a handler need not doubt what it is given: it finds the job, the
// relay or the folder as the message supposes them. A new message may come at any time until a rule
// for it is added here.

namespace {

using Violation = std::optional<std::string>;

struct Rules {
  const AgentProgress& so_far;

  template <typename Anything>
  Violation operator()(const Anything&) const {
    return std::nullopt;
  }
  Violation operator()(const DeliveryFrame&) const { return delivery(); }
  Violation operator()(const KeepDelivery&) const { return delivery(); }
  Violation operator()(const FetchDelivery&) const { return delivery(); }
  Violation operator()(const OfferTree&) const {
    if (!so_far.has_order && !so_far.has_tree) return std::nullopt;
    return "a second folder, or one after the order";
  }
  Violation operator()(const OpenRelay&) const {
    if (!so_far.has_order && !so_far.relays) return std::nullopt;
    return "a second relay, or one after the order";
  }
  Violation operator()(const Probe&) const {
    if (!so_far.probes) return std::nullopt;
    return "a second probe before the first was answered";
  }
  Violation operator()(const HostOrder&) const {
    if (so_far.has_order) return "a second order";
    // The job would start with half of a file.
    if (so_far.in_delivery) return "an order inside a delivery";
    return std::nullopt;
  }
  Violation operator()(const StartRanks&) const {
    if (so_far.has_order && !so_far.started) return std::nullopt;
    return "a start without an order";
  }

 private:
  Violation delivery() const {
    if (!so_far.has_order) return std::nullopt;
    return "a delivery after the order";
  }
};

}  // namespace

std::optional<std::string> out_of_turn(const LauncherMessage& message,
                                       const AgentProgress& progress) {
  return std::visit(Rules{progress}, message);
}

Failure protocol_failure(const std::string& what) {
  return {std::string(failure::kProtocol), "its agent received " + what, ""};
}

// The order comes from the launcher, but a damaged or newer one must not make the agent index out
// of range or run without a lease.

Status check_order(const HostOrder& order) {
  // Milliseconds; a shorter lease would expire between two heartbeats.
  constexpr std::int64_t kShortestLease = 50;
  constexpr std::int64_t kLongest = 30LL * 24 * 3600 * 1000;
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
