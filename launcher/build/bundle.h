// SPDX-License-Identifier: Apache-2.0
// What this installation can ship to a host: the agent and the runtime bundle.
// The build writes share/hora/manifest.json beside them, so nothing is hashed at launch.
#pragma once

#include <memory>
#include <string>

#include "rendezvous/base/result.h"

namespace hora::launcher {

struct Installation {
  std::string share;  // the directory of all this
  std::string agent_path;
  std::string agent_sha256;
  std::string bundle_directory;
  std::string bundle_hash;            // empty when this build has no runtime
  std::string bundle_list = "files";  // .json: what is shipped; .zlib: packed
  std::string tls_bundle_hash;  // of the bundle with libhora_tls.so; empty: built without OpenSSL
  std::string least_glibc;      // the oldest glibc that the bundle's libraries run on; may be empty
};

// Looks in <directory of the running program>/../share/hora, the same in a build tree and an
// installed prefix. Errors: kNotFound names what is missing and how to get it.
Result<Installation> find_installation();

// The same, shipping what --rendezvous-tls needs, too: few jobs do, and it is a third of all the
// rest.
Result<Installation> with_tls(Installation installation);

// The bundle as the frames that carry it to an agent: kBundle, kData..., kDataEnd. Several
// megabytes; made once and shared by all hosts that need it. The build has compressed them: that
// takes longer than hosts should wait for, and on a busy machine longer than agents bear silence.
Result<std::shared_ptr<const std::string>> bundle_frames(const Installation& installation);

// One of the user's own files as kShipFile, kData..., kDataEnd. Errors name the file.
Result<std::string> ship_file_frames(const std::string& path);

}  // namespace hora::launcher
