// SPDX-License-Identifier: Apache-2.0
#include "launcher/startup/start_stage.h"

namespace hora::launcher {

// --timings, reports and the waterfall print these names, and scripts may search for them.
std::string_view stage_name(Stage stage) {
  switch (stage) {
    case Stage::kAbsent:
      return "absent";
    case Stage::kResolve:
      return "resolve";
    case Stage::kConnect:
      return "connect";
    case Stage::kBanner:
      return "ssh banner";
    case Stage::kHostKey:
      return "host key";
    case Stage::kAuthenticate:
      return "authenticate";
    case Stage::kShell:
      return "shell";
    case Stage::kShip:
      return "ship";
    case Stage::kAgent:
      return "agent";
    case Stage::kRoute:
      return "route";
    case Stage::kPrepare:
      return "prepare";
    case Stage::kReady:
      return "ready";
    case Stage::kRanks:
      return "ranks";
    case Stage::kRendezvous:
      return "rendezvous";
    case Stage::kFirstCollective:
      return "first collective";
    case Stage::kWork:
      return "work";
  }
  return "unknown";
}

}  // namespace hora::launcher
