// SPDX-License-Identifier: Apache-2.0
// How far a host has come on its way to running ranks.  [pure]
#pragma once

#include <cstddef>
#include <string_view>

namespace hora::launcher {

// For progress, --timings and start-up errors. Transports report up to kAgent, the supervisor what
// follows.
enum class Stage {
  kAbsent,  // its engine has not started it yet: horarun tries again
  kResolve,
  kConnect,
  kBanner,  // connected; its ssh server has yet to say that it is one
  kHostKey,
  kAuthenticate,
  kShell,
  kShip,
  kAgent,
  kRoute,    // tries which addresses lead to the other hosts
  kPrepare,  // has its order
  kReady,
  kRanks,
  kRendezvous,       // its ranks meet the others
  kFirstCollective,  // they have met; the first operation is still to end
  kWork,
};
inline constexpr std::size_t kStages = static_cast<std::size_t>(Stage::kWork) + 1;
std::string_view stage_name(Stage stage);

}  // namespace hora::launcher
