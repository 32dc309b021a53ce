// SPDX-License-Identifier: Apache-2.0
// Which parts of the runtime a job needs, as the launcher tells every agent on its command line.
// [pure]
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::launcher {

struct NeededPart {
  std::string hash;
  bool with_gpu = false;  // only hosts with a GPU need it
  friend bool operator==(const NeededPart&, const NeededPart&) = default;
};

// "HASH,HASH:gpu"; may be empty.
std::string part_list_text(const std::vector<NeededPart>& parts);
Result<std::vector<NeededPart>> parse_part_list(std::string_view text);

// Whether the text may be a part's or a bundle's name: hexadecimal digits, 16 to 128 of them.
bool is_hash(std::string_view text);

// What hosts call a bundle of these parts, in whichever order: the SHA-256 of their sorted hashes.
std::string bundle_name(std::vector<std::string> part_hashes);

}  // namespace hora::launcher
