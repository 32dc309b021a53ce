// SPDX-License-Identifier: Apache-2.0
// A vendor's library of this machine that hosts without one can be sent, as a part of the bundle:
// MPI does not belong to an installation of Hora, but to the machine that horarun runs on.
// [pure]
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "launcher/build/part_file.h"

namespace hora::launcher {

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
  // What a host's order prepends where ranks use it (HostOrder::prepend_paths).
  std::vector<std::pair<std::string, std::string>> paths;
};

std::uint64_t unpacked_bytes(const VendorPart& part);

}  // namespace hora::launcher
