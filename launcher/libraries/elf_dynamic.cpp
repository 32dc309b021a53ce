// SPDX-License-Identifier: Apache-2.0
// Goes by the program headers, as the loader does: sections may have been stripped. Every offset
// and count comes from the file, so each is bounded before it is used, and a read beyond the end
// fails.
#include "launcher/libraries/elf_dynamic.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace hora::launcher {

namespace {

// Against damaged files; the largest libraries there are have a tenth of this.
constexpr std::size_t kMostHeaders = 256;
constexpr std::size_t kMostEntries = 4096;
constexpr std::size_t kMostStrings = 64u << 20;
constexpr std::size_t kLongestString = 4096;
constexpr std::size_t kMostVersions = 4096;

template <typename Header>
bool read_header(const ReadAt& read_at, std::uint64_t offset, Header& header) {
  return read_at(offset, &header, sizeof header);
}

// The parts of one file that its dynamic section refers to.
class Reader {
 public:
  explicit Reader(const ReadAt& read_at) : read_at_(read_at) {}

  bool open();
  std::optional<ElfDynamic> read();

 private:
  std::optional<std::uint64_t> offset_of(std::uint64_t address) const;
  std::string text_at(std::uint64_t index) const;
  std::string least_glibc(std::uint64_t address) const;

  const ReadAt& read_at_;
  Elf64_Ehdr header_{};
  std::vector<Elf64_Phdr> loaded_;
  Elf64_Phdr dynamic_{};
  std::uint64_t strings_ = 0;
  std::uint64_t strings_size_ = 0;
};

// 64 bits and little-endian, as all machines are that there is a build for. A program that is
// linked statically has no dynamic section, and so needs no library.
bool Reader::open() {
  if (!read_header(read_at_, 0, header_) || std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0 ||
      header_.e_ident[EI_CLASS] != ELFCLASS64 || header_.e_ident[EI_DATA] != ELFDATA2LSB ||
      header_.e_phentsize != sizeof(Elf64_Phdr) || header_.e_phnum > kMostHeaders) {
    return false;
  }
  for (std::size_t i = 0; i < header_.e_phnum; ++i) {
    Elf64_Phdr segment{};
    if (!read_header(read_at_, header_.e_phoff + i * sizeof segment, segment)) return false;
    if (segment.p_type == PT_LOAD) loaded_.push_back(segment);
    if (segment.p_type == PT_DYNAMIC) dynamic_ = segment;
  }
  return dynamic_.p_type == PT_DYNAMIC;
}

// The dynamic section names addresses, as they will be in memory.
std::optional<std::uint64_t> Reader::offset_of(std::uint64_t address) const {
  for (const Elf64_Phdr& segment : loaded_) {
    if (address >= segment.p_vaddr && address - segment.p_vaddr < segment.p_filesz) {
      return segment.p_offset + (address - segment.p_vaddr);
    }
  }
  return std::nullopt;
}

// Empty where no NUL ends it: half a name would be another name.
std::string Reader::text_at(std::uint64_t index) const {
  if (index >= strings_size_) return {};
  std::string text(std::min<std::uint64_t>(strings_size_ - index, kLongestString), '\0');
  if (!read_at_(strings_ + index, text.data(), text.size())) return {};
  const std::size_t end = text.find('\0');
  return end == std::string::npos ? std::string() : text.substr(0, end);
}

// "GLIBC_2.34" among the versions that it needs; glibc counts in its second number.
std::string Reader::least_glibc(std::uint64_t address) const {
  constexpr std::string_view kPrefix = "GLIBC_2.";
  auto at = offset_of(address);
  int newest = -1;
  std::size_t seen = 0;
  while (at && seen < kMostVersions) {
    Elf64_Verneed file{};
    if (!read_header(read_at_, *at, file)) break;
    std::uint64_t version_at = *at + file.vn_aux;
    for (int left = file.vn_cnt; left > 0 && seen < kMostVersions; --left, ++seen) {
      Elf64_Vernaux version{};
      if (!read_header(read_at_, version_at, version)) break;
      const std::string name = text_at(version.vna_name);
      if (name.compare(0, kPrefix.size(), kPrefix) == 0) {
        int release = 0;
        for (std::size_t i = kPrefix.size(); i < name.size() && release < 1000; ++i) {
          if (name[i] < '0' || name[i] > '9') break;
          release = release * 10 + (name[i] - '0');
        }
        newest = std::max(newest, release);
      }
      if (version.vna_next == 0) break;
      version_at += version.vna_next;
    }
    ++seen;
    if (file.vn_next == 0) break;
    *at += file.vn_next;
  }
  return newest < 0 ? std::string() : "2." + std::to_string(newest);
}

std::optional<ElfDynamic> Reader::read() {
  std::vector<Elf64_Dyn> entries(
      std::min<std::uint64_t>(dynamic_.p_filesz / sizeof(Elf64_Dyn), kMostEntries));
  if (entries.empty() ||
      !read_at_(dynamic_.p_offset, entries.data(), entries.size() * sizeof(Elf64_Dyn))) {
    return std::nullopt;
  }
  const auto end = std::find_if(entries.begin(), entries.end(),
                                [](const Elf64_Dyn& entry) { return entry.d_tag == DT_NULL; });
  entries.erase(end, entries.end());
  std::optional<std::uint64_t> versions;
  for (const Elf64_Dyn& entry : entries) {
    if (entry.d_tag == DT_STRSZ) strings_size_ = std::min(entry.d_un.d_val, kMostStrings);
    if (entry.d_tag == DT_VERNEED) versions = entry.d_un.d_ptr;
    if (entry.d_tag != DT_STRTAB) continue;
    const auto offset = offset_of(entry.d_un.d_ptr);
    if (!offset) return std::nullopt;
    strings_ = *offset;
  }
  ElfDynamic found;
  found.machine = header_.e_machine;
  for (const Elf64_Dyn& entry : entries) {
    if (entry.d_tag == DT_SONAME) found.soname = text_at(entry.d_un.d_val);
    if (entry.d_tag == DT_NEEDED) found.needed.push_back(text_at(entry.d_un.d_val));
    if (entry.d_tag == DT_RPATH && found.run_path.empty())
      found.run_path = text_at(entry.d_un.d_val);
    if (entry.d_tag == DT_RUNPATH) found.run_path = text_at(entry.d_un.d_val);
  }
  // The loader prefers DT_RUNPATH and ignores DT_RPATH beside it.
  // A library without a name cannot be searched: the file is damaged.
  if (std::find(found.needed.begin(), found.needed.end(), "") != found.needed.end()) {
    return std::nullopt;
  }
  if (versions) found.least_glibc = least_glibc(*versions);
  return found;
}

}  // namespace

std::optional<ElfDynamic> parse_elf_dynamic(const ReadAt& read_at) {
  Reader reader(read_at);
  return reader.open() ? reader.read() : std::nullopt;
}

int own_elf_machine() {
#if defined(__x86_64__)
  return EM_X86_64;
#elif defined(__aarch64__)
  return EM_AARCH64;
#else
#error "which e_machine do files for this architecture have?"
#endif
}

}  // namespace hora::launcher
