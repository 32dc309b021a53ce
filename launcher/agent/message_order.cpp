// SPDX-License-Identifier: Apache-2.0
// One place for all of it, so that a handler need not doubt what it is given: it finds the job, the
// relay or the folder as the message supposes them. A new message may come at any time until a rule
// for it is added here.
#include "launcher/agent/message_order.h"

#include <variant>

#include "launcher/failures/failure_code.h"

namespace hora::launcher {

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

}  // namespace hora::launcher
