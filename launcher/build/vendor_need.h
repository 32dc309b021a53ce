// SPDX-License-Identifier: Apache-2.0
// A job needs a vendor's library on its hosts: which of them use their own, which are sent this
// machine's, and which can do neither.  [pure]
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/build/vendor_part.h"
#include "launcher/plan/worker_environment.h"
#include "launcher/protocol/messages.h"
#include "launcher/protocol/part_list.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

enum class VendorMode {
  kAuto,  // the host's where programs can load it, otherwise this machine's
  kSite,  // the host's
  kShip,  // this machine's
};

struct VendorNeed {
  std::string name;      // "Open MPI"
  std::string variable;  // that has chosen the mode: "HORA_MPI"
  VendorMode mode = VendorMode::kAuto;
  std::vector<std::string> sonames;  // what a host of its own has, all of them
  // Hosts that have none of these, or no GPU, have no use for it, and are left alone.
  std::vector<std::string> with;
  bool with_gpu = false;
  std::string for_part;      // of the runtime, which uses it; a build without that needs it not
  bool is_optional = false;  // the job runs without it, if more slowly
  std::string package;       // that has them, for people
  std::shared_ptr<const VendorPart> part;  // this machine's; null: there is none to send
  std::string why_no_part;
};

// What the variable says: auto (also if it is not set), site or ship. kUsage for anything else.
Result<VendorMode> vendor_mode(const EnvironmentList& environment, std::string_view variable);
std::string_view mode_name(VendorMode mode);

// All libraries that agents are to look for.
std::vector<std::string> libraries_of(const VendorNeed& need);
// How agents are told; nothing if nobody is sent anything.
std::optional<NeededPart> needed_part(const VendorNeed& need);
// Whether ranks on that host, another machine, use what was sent.
bool uses_sent(const VendorNeed& need, const Hello& host);

// Why the job cannot run there. `is_remote`: the host is another machine, which can be sent files.
std::optional<Failure> why_unfit(const VendorNeed& need, const Hello& host, bool is_remote);
// What the user should know of a host that is left as it is; empty: nothing.
std::string unfit_warning(const VendorNeed& need, const Hello& host, bool is_remote);

// One line for --dry-run; empty: nothing worth one.
std::string plan_text(const VendorNeed& need);

}  // namespace hora::launcher
