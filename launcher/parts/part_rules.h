// SPDX-License-Identifier: Apache-2.0
// Which parts of the runtime a job ships, and which hosts are sent this machine's libraries of
// vendors.  [pure]
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/parts/part_file.h"
#include "launcher/plan/job_spec.h"
#include "launcher/plan/worker_environment.h"
#include "launcher/protocol/delivery.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// A vendor's library of this machine that hosts without one can be sent, as a part of the bundle:
// MPI does not belong to an installation of Hora, but to the machine that horarun runs on.

struct VendorPart {
  std::string name;    // "Open MPI"
  std::string origin;  // the library's path on this machine
  std::string hash;
  std::vector<PartFile> files;  // sorted by path; the hash is theirs
  // Their real paths. The licence texts of the packages that these come from travel along. They are
  // looked for when the part is packed, since most launches pack nothing: the hash does not count
  // them.
  std::vector<std::string> packaged;
  std::string licence_folder;      // where the texts go
  std::string memory_folder;       // that the hashes of the files may come from (KnownHashes)
  std::string least_glibc;         // of hosts that can load it; may be empty
  std::vector<std::string> needs;  // libraries that it does not hold, and a host must have
  // Paths that a host's order prepends if ranks use it (HostOrder::prepend_paths).
  std::vector<std::pair<std::string, std::string>> paths;
};

std::uint64_t unpacked_bytes(const VendorPart& part);

// A job needs a vendor's library on its hosts: which of them use their own, which are sent this
// machine's, and which can do neither.

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

// The value of the variable: auto (also if it is not set), site or ship. kUsage for anything else.
Result<VendorMode> vendor_mode(const EnvironmentList& environment, std::string_view variable);
std::string_view mode_name(VendorMode mode);

// All libraries that agents are to look for.
std::vector<std::string> libraries_of(const VendorNeed& need);
// What agents receive; nothing if no host is sent anything.
std::optional<NeededPart> needed_part(const VendorNeed& need);
// Whether ranks on that host, another machine, use what was sent.
bool uses_sent(const VendorNeed& need, const Hello& host);

// Why the job cannot run there. `is_remote`: the host is another machine, which can be sent files.
std::optional<Failure> why_unfit(const VendorNeed& need, const Hello& host, bool is_remote);
// A note for the user about a host that is left as it is; empty: none.
std::string unfit_warning(const VendorNeed& need, const Hello& host, bool is_remote);

// One line for --dry-run; empty: nothing worth one.
std::string plan_text(const VendorNeed& need);

// Which parts of the runtime a job ships. A part is a line of the table in the .cpp file, and a
// name in hora_bundle() (scripts/cmake/HoraBundle.cmake).

enum class Shipping { kNo, kToGpus, kYes };  // kToGpus: to hosts that have one

// `environment` is the launcher's, which ranks inherit. A part that no rule knows is always
// shipped.
Shipping shipping_for_job(std::string_view part, const JobSpec& spec,
                          const EnvironmentList& environment);

// Whether ranks may move tensors by NCCL, on hosts where that works: there are several, and
// HORA_BACKENDS does not rule it out.
bool may_use_nccl(const JobSpec& spec, const EnvironmentList& environment);

// For `horarun doctor`.
// With the runtime it loads what ranks would load.
Shipping shipping_for_doctor(std::string_view part, bool with_runtime);

}  // namespace hora::launcher
