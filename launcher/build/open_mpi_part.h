// SPDX-License-Identifier: Apache-2.0
// This machine's Open MPI as a part that hosts without one can be sent.
#pragma once

#include <string>
#include <vector>

#include "launcher/build/known_hashes.h"
#include "launcher/build/vendor_part.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// What a program of Open MPI 4 or 5, and hora-pmix, load by name. A host that has all of them, and
// what they need, has a usable Open MPI.
std::vector<std::string> open_mpi_sonames();

// Looks at all of it, and reads what `hashes` does not know yet. `folders` are searched before the
// system's, as LD_LIBRARY_PATH is. The error says what is missing.
Result<VendorPart> collect_open_mpi(const std::vector<std::string>& folders, KnownHashes& hashes);

}  // namespace hora::launcher
