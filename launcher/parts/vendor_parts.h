// SPDX-License-Identifier: Apache-2.0
// This machine's NCCL and Open MPI as parts that hosts without them can be sent, and the licence
// texts of what is sent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/parts/hashes.h"
#include "launcher/parts/part_file.h"
#include "launcher/parts/part_rules.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// The licence texts of what is sent to other machines.

struct LicenceFile {
  std::string package;
  std::string path;
};

// The licence texts of the packages (dpkg, rpm) that own the files; none for files without a
// package. Reads the lists of dpkg, about 20 MB; asks rpm in a child process.
std::vector<LicenceFile> find_licence_files(const std::vector<std::string>& files);

// The same as files of a part, in a folder for each package below `folder`.
Result<std::vector<PartFile>> licence_parts(const std::vector<std::string>& files,
                                            const std::string& folder);

// This machine's NCCL as a part that hosts without one can be sent: the library, and its licence.

// What programs, and the NCCL backend, load by name.
inline constexpr const char* kNcclSoname = "libnccl.so.2";
// Without it NCCL has nothing to work with.
inline constexpr const char* kCudaDriverSoname = "libcuda.so.1";

struct FoundNccl {
  std::string path;
  std::string licence;  // its text's path
  std::uint64_t size_bytes = 0;
  std::string least_glibc;
  std::vector<std::string> needs;  // that the C library and the driver do not have
};

// `folders` are searched before the system's. The error says what is missing: the library, or the
// text of its licence, which asks that the text goes wherever the library goes. Reads headers only.
Result<FoundNccl> find_nccl(const std::vector<std::string>& folders);

// Reads all of it if `hashes` does not know it.
Result<VendorPart> collect_nccl(const FoundNccl& found, KnownHashes& hashes);

// This machine's Open MPI as a part that hosts without one can be sent.

// The libraries that a program of Open MPI 4 or 5, and hora-pmix, load by name. A host that has all
// of them, and their dependencies, has a usable Open MPI.
std::vector<std::string> open_mpi_sonames();

// Looks at all of it, and reads what `hashes` does not know yet. `folders` are searched before the
// system's, as LD_LIBRARY_PATH is. The error says what is missing.
Result<VendorPart> collect_open_mpi(const std::vector<std::string>& folders, KnownHashes& hashes);

}  // namespace hora::launcher
