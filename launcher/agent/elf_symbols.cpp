// SPDX-License-Identifier: Apache-2.0
// Finds function names for code offsets by reading an ELF file's symbol tables. The file may be
// anything that a rank has mapped, so every number in it is checked before it is used.
#include "launcher/agent/elf_symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "rendezvous/os/fd.h"

namespace hora::launcher {

namespace {

// Limits against damaged files; the largest real libraries have a few million symbols.
constexpr std::size_t kMostHeaders = 4096;
constexpr std::size_t kSymbolsAtOnce = 16 * 1024;
constexpr std::uint64_t kMostSymbols = 8'000'000;
constexpr std::size_t kMostNameBytes = 1000;

class ElfFile {
 public:
  explicit ElfFile(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}

  // Reads whole items or nothing; a short file yields nothing.
  template <typename Item>
  std::optional<std::vector<Item>> read(std::uint64_t offset, std::size_t count) const {
    std::vector<Item> items(count);
    const std::size_t bytes = count * sizeof(Item);
    if (!fd_.valid() || offset > INT64_MAX ||
        ::pread(fd_.get(), items.data(), bytes, static_cast<off_t>(offset)) !=
            static_cast<ssize_t>(bytes)) {
      return std::nullopt;
    }
    return items;
  }

  std::string text_at(std::uint64_t offset) const {
    char bytes[kMostNameBytes];
    if (offset > INT64_MAX) return {};
    const ssize_t got = ::pread(fd_.get(), bytes, sizeof bytes, static_cast<off_t>(offset));
    return got > 0 ? std::string(bytes, ::strnlen(bytes, static_cast<std::size_t>(got)))
                   : std::string();
  }

 private:
  os::Fd fd_;
};

// Symbols count in virtual addresses, mappings in file offsets; the segments translate.
struct Wanted {
  std::uint64_t address = 0;  // as the file's symbols count
  std::uint64_t offset = 0;
  std::uint64_t name_at = 0;  // in the file; 0: not found yet
};

// Translates the offsets by the file's segments, and returns the results in order of address.
std::vector<Wanted> to_addresses(const std::vector<ElfW(Phdr)>& segments,
                                 const std::vector<std::uint64_t>& offsets) {
  std::vector<Wanted> wanted;
  for (const std::uint64_t offset : offsets) {
    for (const auto& segment : segments) {
      if (segment.p_type != PT_LOAD || offset < segment.p_offset ||
          offset - segment.p_offset >= segment.p_filesz) {
        continue;
      }
      wanted.push_back({segment.p_vaddr + (offset - segment.p_offset), offset, 0});
      break;
    }
  }
  std::sort(wanted.begin(), wanted.end(),
            [](const Wanted& a, const Wanted& b) { return a.address < b.address; });
  return wanted;
}

// Reads the table in blocks, and remembers only where a name is: names are read for the hits alone.
void look_through(const ElfFile& file, const ElfW(Shdr) & table, const ElfW(Shdr) & names,
                  std::vector<Wanted>& wanted) {
  const std::uint64_t count =
      std::min<std::uint64_t>(table.sh_size / sizeof(ElfW(Sym)), kMostSymbols);
  for (std::uint64_t first = 0; first < count; first += kSymbolsAtOnce) {
    const auto some = file.read<ElfW(Sym)>(
        table.sh_offset + first * sizeof(ElfW(Sym)),
        static_cast<std::size_t>(std::min<std::uint64_t>(kSymbolsAtOnce, count - first)));
    if (!some) return;
    for (const auto& symbol : *some) {
      const int type = ELF64_ST_TYPE(symbol.st_info);
      if (symbol.st_size == 0 || symbol.st_shndx == SHN_UNDEF ||
          (type != STT_FUNC && type != STT_GNU_IFUNC)) {
        continue;
      }
      // All wanted addresses inside the symbol's range take its name; the first symbol found wins.
      auto at =
          std::lower_bound(wanted.begin(), wanted.end(), symbol.st_value,
                           [](const Wanted& w, std::uint64_t value) { return w.address < value; });
      for (; at != wanted.end() && at->address - symbol.st_value < symbol.st_size; ++at) {
        if (at->name_at == 0) at->name_at = names.sh_offset + symbol.st_name;
      }
    }
  }
}

}  // namespace

std::map<std::uint64_t, std::string> find_elf_symbols(const std::string& path,
                                                      const std::vector<std::uint64_t>& offsets) {
  const ElfFile file(path);
  const auto head = file.read<ElfW(Ehdr)>(0, 1);
  // Only files of the agent's own word size: the structures are those of this build.
  constexpr int kOurClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
  if (!head || std::memcmp(head->front().e_ident, ELFMAG, SELFMAG) != 0 ||
      head->front().e_ident[EI_CLASS] != kOurClass || head->front().e_shnum > kMostHeaders ||
      head->front().e_phnum > kMostHeaders || head->front().e_shentsize != sizeof(ElfW(Shdr)) ||
      head->front().e_phentsize != sizeof(ElfW(Phdr))) {
    return {};
  }
  const auto segments = file.read<ElfW(Phdr)>(head->front().e_phoff, head->front().e_phnum);
  const auto sections = file.read<ElfW(Shdr)>(head->front().e_shoff, head->front().e_shnum);
  if (!segments || !sections) return {};
  std::vector<Wanted> wanted = to_addresses(*segments, offsets);
  // The full table names static functions, too, but stripped libraries only have the dynamic one.
  for (const unsigned type : {SHT_SYMTAB, SHT_DYNSYM}) {
    for (const auto& section : *sections) {
      if (section.sh_type != type || section.sh_link >= sections->size()) continue;
      look_through(file, section, (*sections)[section.sh_link], wanted);
    }
  }
  std::map<std::uint64_t, std::string> found;
  for (const Wanted& each : wanted) {
    if (each.name_at == 0) continue;
    if (std::string name = file.text_at(each.name_at); !name.empty())
      found[each.offset] = std::move(name);
  }
  return found;
}

std::string readable_symbol(const std::string& symbol) {
  int status = 0;
  char* plain = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
  std::string text = status == 0 && plain != nullptr ? plain : symbol;
  std::free(plain);
  constexpr std::string_view kUnnamed = "(anonymous namespace)::";
  for (std::size_t at = text.find(kUnnamed); at != std::string::npos; at = text.find(kUnnamed)) {
    text.erase(at, kUnnamed.size());
  }
  // Cut the argument list, but keep "operator()" and everything inside <> and {}.
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<' || text[i] == '{') ++depth;
    if ((text[i] == '>' || text[i] == '}') && depth > 0) --depth;
    const bool call_operator = i >= 8 && text.compare(i - 8, 8, "operator") == 0;
    if (text[i] == '(' && depth == 0 && i > 0 && !call_operator) {
      text.resize(i);
      break;
    }
  }
  constexpr std::size_t kMost = 120;
  if (text.size() > kMost) text = text.substr(0, kMost - 3) + "...";
  return text;
}

}  // namespace hora::launcher
