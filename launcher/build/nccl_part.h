// SPDX-License-Identifier: Apache-2.0
// This machine's NCCL as a part that hosts without one can be sent: the library, and its licence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/build/known_hashes.h"
#include "launcher/build/vendor_part.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

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

}  // namespace hora::launcher
