// SPDX-License-Identifier: Apache-2.0
#include "launcher/machine/elf_dynamic.h"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace hora::launcher {

// Uses the program headers, as the loader does: sections may have been stripped. Every offset and
// count comes from the file, so each is bounded before it is used, and a read beyond the end fails.

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
  // The loader prefers DT_RUNPATH and ignores a DT_RPATH in the same file. A library without a name
  // cannot be searched: the file is damaged.
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

namespace {

// Against damaged files, as elf_dynamic.cpp; the kernel takes no longer name than PATH_MAX.
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
    // The name ends at its first NUL; the kernel does not accept one without it either.
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

// The format since glibc 2.2, alone (the default since 2.32) or after the one before it:
//   "glibc-ld.so.cache1.1", u32 entries, u32 bytes of strings, 20 bytes more
//   entries of { i32 flags, u32 soname, u32 file, u32, u64 }, offsets from the beginning of these
// It lists thousands of libraries, of which a few are looked for: nothing is taken out beforehand.

namespace {

constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
constexpr std::size_t kHeader = 48;
constexpr std::size_t kEntry = 24;

std::uint32_t u32_at(std::string_view bytes, std::size_t offset) {
  std::uint32_t value = 0;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// Whether that text exists there, with its final NUL.
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

// Flags and capabilities of an entry are not checked: the opener of the file sees its processor.
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
