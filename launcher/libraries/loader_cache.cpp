// SPDX-License-Identifier: Apache-2.0
// The format since glibc 2.2, alone (the default since 2.32) or behind the one before it:
//   "glibc-ld.so.cache1.1", u32 entries, u32 bytes of strings, 20 bytes more
//   entries of { i32 flags, u32 soname, u32 file, u32, u64 }, offsets from the beginning of all
//   this
// It lists thousands of libraries, of which a few are looked for: nothing is taken out beforehand.
#include "launcher/libraries/loader_cache.h"

#include <algorithm>
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

// Whether that text, with the NUL that ends it, is there.
bool is_text_at(std::string_view bytes, std::uint32_t offset, std::string_view text) {
  if (offset > bytes.size() || bytes.size() - offset <= text.size()) return false;
  return bytes.substr(offset, text.size()) == text && bytes[offset + text.size()] == '\0';
}

// Empty where no NUL ends it.
std::string_view text_at(std::string_view bytes, std::uint32_t offset) {
  if (offset >= bytes.size()) return {};
  const std::string_view rest = bytes.substr(offset);
  const std::size_t end = rest.find('\0');
  return end == std::string_view::npos ? std::string_view() : rest.substr(0, end);
}

}  // namespace

LoaderCache::LoaderCache(std::string bytes) : bytes_(std::move(bytes)) {
  const std::size_t begin = bytes_.find(kMagic);
  if (begin == std::string::npos || bytes_.size() - begin < kHeader) return;
  begin_ = begin;
  count_ = std::min<std::size_t>(u32_at(list(), kMagic.size()), (list().size() - kHeader) / kEntry);
}

// Flags and capabilities of an entry are not looked at: who opens the file sees its processor.
std::vector<std::string> LoaderCache::files_of(std::string_view soname) const {
  std::vector<std::string> files;
  if (soname.empty()) return files;
  for (std::size_t i = 0; i < count_; ++i) {
    const std::size_t at = kHeader + i * kEntry;
    if (!is_text_at(list(), u32_at(list(), at + 4), soname)) continue;
    const std::string_view file = text_at(list(), u32_at(list(), at + 8));
    if (file.substr(0, 1) == "/") files.emplace_back(file);
  }
  return files;
}

}  // namespace hora::launcher
