// SPDX-License-Identifier: Apache-2.0
#include "launcher/libraries/elf_loader.h"

#include <elf.h>

#include <cstring>

namespace hora::launcher {

namespace {

// Against damaged files, as elf_dynamic.cpp; the kernel takes no longer name than PATH_MAX.
constexpr std::size_t kMostHeaders = 256;
constexpr std::size_t kLongestName = 4096;

// The two classes differ in the widths of their fields alone.
template <typename Header, typename Segment>
std::optional<std::string> loader_of(const ReadAt& read_at) {
  Header header{};
  if (!read_at(0, &header, sizeof header) || header.e_phentsize != sizeof(Segment) ||
      header.e_phnum > kMostHeaders) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < header.e_phnum; ++i) {
    Segment segment{};
    if (!read_at(header.e_phoff + i * sizeof segment, &segment, sizeof segment)) break;
    if (segment.p_type != PT_INTERP) continue;
    if (segment.p_filesz < 2 || segment.p_filesz > kLongestName) break;
    std::string name(segment.p_filesz, '\0');
    if (!read_at(segment.p_offset, name.data(), name.size())) break;
    // The name ends at its first NUL; one that has none is no name to the kernel either.
    const std::size_t end = name.find('\0');
    if (end == std::string::npos || end == 0) break;
    return name.substr(0, end);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> parse_elf_loader(const ReadAt& read_at) {
  unsigned char ident[EI_NIDENT];
  if (!read_at(0, ident, sizeof ident) || std::memcmp(ident, ELFMAG, SELFMAG) != 0 ||
      ident[EI_DATA] != ELFDATA2LSB) {
    return std::nullopt;
  }
  if (ident[EI_CLASS] == ELFCLASS64) return loader_of<Elf64_Ehdr, Elf64_Phdr>(read_at);
  if (ident[EI_CLASS] == ELFCLASS32) return loader_of<Elf32_Ehdr, Elf32_Phdr>(read_at);
  return std::nullopt;
}

}  // namespace hora::launcher
