// SPDX-License-Identifier: Apache-2.0
// Which parts of the runtime a job needs, as the launcher tells every agent on its command line.
// [pure]
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::launcher {

struct Hello;

// Only hosts that meet all conditions need it.
struct NeededPart {
  std::string hash;
  bool with_gpu = false;            // the host has one
  std::vector<std::string> with{};  // the host has these libraries (sonames)
  std::vector<std::string>
      lacks{};                // the host lacks one of these, or what it needs; empty: no matter
  std::string least_glibc{};  // the host's is as new; empty: no matter
  friend bool operator==(const NeededPart&, const NeededPart&) = default;
};

// "HASH,HASH:gpu,HASH:with=libcuda.so.1:lacks=libmpi.so.40#libpmix.so.2:glibc=2.34"; may be empty.
std::string part_list_text(const std::vector<NeededPart>& parts);
Result<std::vector<NeededPart>> parse_part_list(std::string_view text);

// The libraries that the conditions name, each once.
std::vector<std::string> libraries_in(const std::vector<NeededPart>& parts);
// By what the host's agent says of GPUs, libraries and glibc.
bool is_needed(const NeededPart& part, const Hello& host);

// Whether the text may be a part's or a bundle's name: hexadecimal digits, 16 to 128 of them.
bool is_hash(std::string_view text);

// What hosts call a bundle of these parts, in whichever order: the SHA-256 of their sorted hashes.
std::string bundle_name(std::vector<std::string> part_hashes);

}  // namespace hora::launcher
