// SPDX-License-Identifier: Apache-2.0
// What this installation can ship to a host, the agent and the runtime bundle, and how it is packed
// into one zstd frame.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/parts/part_rules.h"
#include "launcher/plan/job_spec.h"
#include "launcher/plan/worker_environment.h"
#include "launcher/protocol/delivery.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// Packs what agents receive: bytes into one zstd frame, cut into protocol frames.

class FramePacker {
 public:
  explicit FramePacker(int level);
  ~FramePacker();
  FramePacker(const FramePacker&) = delete;
  FramePacker& operator=(const FramePacker&) = delete;

  Status add(std::string_view bytes);
  struct Packed {
    std::string sha256;  // of the zstd frame, lower-case hex
    std::string frames;  // kData..., kDataEnd
  };
  Result<Packed> finish();

 private:
  struct State;
  Status run(std::string_view bytes, bool last);

  std::unique_ptr<State> state_;
};

// What this installation can ship to a host: the agent and the runtime bundle, for one or more
// kinds of processor. The build writes a manifest.json next to each pair, so nothing is hashed at
// launch.

// For hosts with one kind of processor.
struct Build {
  std::string machine;    // as `uname -m` names the processor: "x86_64", "aarch64"
  std::string directory;  // share/hora/<machine>
  std::string fault;      // why it cannot be used; empty: it can
  std::string agent_path;
  std::string agent_sha256;
  std::string dial_path;                           // of hora-dial, for the steps of engines
  std::string dial_sha256;                         // empty: this build has none
  std::string bundle_directory;                    // all parts, as they lie on hosts
  std::map<std::string, std::string> part_hashes;  // by name; empty when this build has no runtime
  std::vector<NeededPart> needed_parts;            // to ship; none before one of the calls below
  std::vector<VendorNeed> vendor_needs;            // of the job, in addition to its own parts
  std::string least_glibc;  // the oldest glibc that the bundle's libraries run on; may be empty
};

struct Installation {
  std::vector<Build> builds;  // never empty; the one for this machine comes first, without a fault
  // Where programs of the job look for libraries, for agents that look for some, "a:b".
  std::string library_path;
  std::string run_path;
  std::string program;  // its name, for the same agents

  const Build& own() const { return builds.front(); }
  // The build for hosts of that machine; nullptr: there is none, or it has a fault. An empty name
  // is this machine's own.
  const Build* find(std::string_view machine) const;
  // "x86_64, aarch64 (its agent is missing)"
  std::string machines_text() const;
};

// Looks in <directory of the running program>/../share/hora, the same in a build tree and an
// installed prefix. Errors: kNotFound names what is missing and how to get it.
Result<Installation> find_installation();
// The same for that share/hora and machine.
Result<Installation> read_installation(const std::string& share, std::string_view own);

// The same, with the parts that the job needs (part_rules.h), and with what it needs of vendors'
// libraries, which is looked for here. kUsage: it asks for what was not built, or is not here. A
// build for other machines that lacks it gets a fault.
Result<Installation> with_parts_for_job(Installation installation, const JobSpec& spec,
                                        const EnvironmentList& environment);
// `with_runtime`: the doctor loads the libraries, too.
Installation with_parts_for_doctor(Installation installation, bool with_runtime);

// The part with that hash as the frames that carry it to an agent: kPart, kData..., kDataEnd. About
// a megabyte; made when the first host lacks it, and shared by all that do. Packing takes about 30
// ms.
Result<std::shared_ptr<const std::string>> part_frames(const Build& build, const std::string& hash);

// One of the user's own files, read piece by piece: kInterrupted as check_interrupted() says. Other
// errors name the file.
struct ShippedFile {
  std::string head;  // kShipFile
  std::string data;  // kData..., kDataEnd; as large as the file, so that it is not copied
};
Result<ShippedFile> ship_file_frames(const std::string& path);

}  // namespace hora::launcher
