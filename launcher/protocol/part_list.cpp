// SPDX-License-Identifier: Apache-2.0
// The list is one word without blanks or quotes, since it crosses a remote login shell.
#include "launcher/protocol/part_list.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include <sha256.h>  // libmd

namespace hora::launcher {

namespace {

// Behind a hash.
constexpr std::string_view kWithGpu = ":gpu";

}  // namespace

bool is_hash(std::string_view text) {
  return text.size() >= 16 && text.size() <= 128 &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string part_list_text(const std::vector<NeededPart>& parts) {
  std::string text;
  for (const NeededPart& part : parts) {
    if (!text.empty()) text += ',';
    text += part.hash;
    if (part.with_gpu) text += kWithGpu;
  }
  return text;
}

Result<std::vector<NeededPart>> parse_part_list(std::string_view text) {
  std::vector<NeededPart> parts;
  while (!text.empty()) {
    std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    NeededPart& part = parts.emplace_back();
    part.with_gpu =
        item.size() > kWithGpu.size() && item.substr(item.size() - kWithGpu.size()) == kWithGpu;
    if (part.with_gpu) item.remove_suffix(kWithGpu.size());
    part.hash = std::string(item);
    if (!is_hash(item)) {
      return make_error(ErrorCode::kUsage,
                        "'" + part.hash.substr(0, 80) + "' is no hash of a part");
    }
  }
  return parts;
}

std::string bundle_name(std::vector<std::string> part_hashes) {
  std::sort(part_hashes.begin(), part_hashes.end());
  std::string text;
  for (const std::string& hash : part_hashes) text += hash + "\n";
  std::array<char, SHA256_DIGEST_STRING_LENGTH> digest;
  SHA256Data(reinterpret_cast<const std::uint8_t*>(text.data()), text.size(), digest.data());
  return digest.data();
}

}  // namespace hora::launcher
