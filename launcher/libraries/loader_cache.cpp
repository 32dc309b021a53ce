// SPDX-License-Identifier: Apache-2.0
// The format since glibc 2.2, alone (the default since 2.32) or behind the one before it:
//   "glibc-ld.so.cache1.1", u32 entries, u32 bytes of strings, 20 bytes more
//   entries of { i32 flags, u32 soname, u32 file, u32, u64 }, offsets from the beginning of all
//   this
#include "launcher/libraries/loader_cache.h"

#include <cstdint>
#include <cstring>

namespace hora::launcher {

namespace {

constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
constexpr std::size_t kHeader = 48;
constexpr std::size_t kEntry = 24;

std::uint32_t u32_at(std::string_view bytes, std::size_t offset) {
  std::uint32_t value = 0;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// Empty where no NUL ends it.
std::string_view text_at(std::string_view bytes, std::uint32_t offset) {
  if (offset >= bytes.size()) return {};
  const std::string_view rest = bytes.substr(offset);
  const std::size_t end = rest.find('\0');
  return end == std::string_view::npos ? std::string_view() : rest.substr(0, end);
}

}  // namespace

std::map<std::string, std::vector<std::string>> parse_loader_cache(std::string_view bytes) {
  std::map<std::string, std::vector<std::string>> found;
  // Flags and capabilities of an entry are not looked at: who opens the file sees its processor.
  const std::size_t begin = bytes.find(kMagic);
  if (begin == std::string_view::npos) return found;
  bytes.remove_prefix(begin);
  if (bytes.size() < kHeader) return found;
  const std::size_t count = u32_at(bytes, kMagic.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = kHeader + i * kEntry;
    if (at + kEntry > bytes.size()) break;
    const std::string_view soname = text_at(bytes, u32_at(bytes, at + 4));
    const std::string_view file = text_at(bytes, u32_at(bytes, at + 8));
    if (soname.empty() || file.substr(0, 1) != "/") continue;
    found[std::string(soname)].emplace_back(file);
  }
  return found;
}

}  // namespace hora::launcher
