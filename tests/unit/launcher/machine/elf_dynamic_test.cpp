// SPDX-License-Identifier: Apache-2.0
#include "launcher/machine/elf_dynamic.h"

#include <cstdint>
#include <cstring>

#include "tests/support/catch.h"
#include "tests/unit/launcher/machine/small_elf.h"

namespace hora::launcher {
namespace {

std::optional<ElfDynamic> parse(const std::string& bytes) {
  return parse_elf_dynamic(reader_of(bytes));
}

TEST_CASE("elf: what a library needs, where it looks, and of which glibc") {
  const SmallElf file{{"liba.so.1", "libc.so.6"},
                      "$ORIGIN/../lib:/opt/lib",
                      {"GLIBC_2.2.5", "GLIBC_2.34", "GLIBC_2.9", "GLIBCXX_3.4.30"}};
  const auto found = parse(file.bytes());
  REQUIRE(found);
  CHECK(found->machine == own_elf_machine());
  CHECK(found->needed == std::vector<std::string>{"liba.so.1", "libc.so.6"});
  CHECK(found->run_path == "$ORIGIN/../lib:/opt/lib");
  CHECK(found->least_glibc == "2.34");
  CHECK(parse(SmallElf{}.bytes())->least_glibc.empty());
}

TEST_CASE("elf: other files are none") {
  CHECK_FALSE(parse(""));
  CHECK_FALSE(parse("#!/bin/sh\n" + std::string(1000, '\n')));
}

TEST_CASE("elf: a damaged file is none") {
  const std::string whole = SmallElf{{"liba.so.1"}, "/lib", {"GLIBC_2.34"}}.bytes();
  const auto good = parse(whole);
  REQUIRE(good);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto cut = parse(whole.substr(0, size));
    CHECK((!cut || cut->needed == good->needed));
  }
  SECTION("a name without an end") {
    SmallElf file{{"liba.so.1"}};
    CHECK(parse(file.bytes()));
    file.lost_bytes = 1;
    CHECK_FALSE(parse(file.bytes()));
  }
  SECTION("a dynamic section without an entry") {
    std::string text = whole;
    const std::size_t dynamic = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr);
    text[dynamic + offsetof(Elf64_Phdr, p_filesz)] = sizeof(Elf64_Dyn) - 1;
    CHECK_FALSE(parse(text));
  }
  SECTION("of the other byte order, or of 32 bits") {
    std::string text = whole;
    text[EI_DATA] = ELFDATA2MSB;
    CHECK_FALSE(parse(text));
    text = whole;
    text[EI_CLASS] = ELFCLASS32;
    CHECK_FALSE(parse(text));
  }
}

const std::string kLoader = "/lib/ld-linux.so.2";

std::optional<std::string> loader_of(const std::string& bytes) {
  return parse_elf_loader(reader_of(bytes));
}

std::string program() {
  SmallElf file{{"libc.so.6"}};
  file.loader = kLoader;
  return file.bytes();
}

// The smallest executable of 32 bits that names a loader.
std::string program_of_32_bits() {
  Elf32_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS32;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf32_Phdr);
  header.e_phnum = 1;
  Elf32_Phdr segment{};
  segment.p_type = PT_INTERP;
  segment.p_offset = sizeof header + sizeof segment;
  segment.p_filesz = static_cast<Elf32_Word>(kLoader.size() + 1);
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes.append(reinterpret_cast<const char*>(&segment), sizeof segment);
  return bytes + kLoader + std::string(1, '\0');
}

TEST_CASE("loader: what an executable of 64 or 32 bits names") {
  CHECK(loader_of(program()) == kLoader);
  CHECK(loader_of(program_of_32_bits()) == kLoader);
}

TEST_CASE("loader: other files have none") {
  CHECK_FALSE(loader_of(""));
  CHECK_FALSE(loader_of("#!/bin/sh\n" + std::string(1000, '\n')));
  CHECK_FALSE(loader_of(SmallElf{{"libc.so.6"}}.bytes()));
  std::string other = program();
  other[EI_DATA] = ELFDATA2MSB;
  CHECK_FALSE(loader_of(other));
}

TEST_CASE("loader: a damaged file never gives another name") {
  for (const std::string& whole : {program(), program_of_32_bits()}) {
    for (std::size_t size = 0; size < whole.size(); ++size) {
      const auto cut = loader_of(whole.substr(0, size));
      CHECK((!cut || *cut == kLoader));
    }
  }
  std::string endless = program_of_32_bits();
  endless.back() = 'x';
  CHECK_FALSE(loader_of(endless));
}

// As ldconfig writes it.
std::string cache_of(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string head = "glibc-ld.so.cache1.1";
  std::string strings, table;
  const auto number = [](std::uint32_t value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const std::size_t strings_at = 48 + 24 * entries.size();
  for (const auto& [soname, file] : entries) {
    table += number(0x0303) + number(static_cast<std::uint32_t>(strings_at + strings.size()));
    strings += soname + '\0';
    table += number(static_cast<std::uint32_t>(strings_at + strings.size()));
    strings += file + '\0';
    table += std::string(12, '\0');
  }
  head += number(static_cast<std::uint32_t>(entries.size())) +
          number(static_cast<std::uint32_t>(strings.size()));
  head.resize(48, '\0');
  return head + table + strings;
}

TEST_CASE("loader cache: files by name, in its order") {
  const std::string bytes =
      cache_of({{"liba.so.1", "/new/liba.so.1"}, {"liba.so.1", "/liba.so.1"}, {"libb.so", "/b"}});
  const LoaderCache cache(bytes);
  using Files = std::vector<std::string>;
  CHECK(cache.files_of("liba.so.1") == Files{"/new/liba.so.1", "/liba.so.1"});
  CHECK(cache.files_of("libb.so") == Files{"/b"});
  CHECK(cache.files_of("liba.so").empty());  // a part of a name is another name
  CHECK(cache.files_of("").empty());
  CHECK(LoaderCache("the old list" + bytes).files_of("libb.so") == Files{"/b"});
}

TEST_CASE("loader cache: what is damaged is left out") {
  const std::string bytes = cache_of({{"liba.so.1", "/liba.so.1"}, {"libb.so", "/b"}});
  CHECK(LoaderCache("").files_of("liba.so.1").empty());
  CHECK(LoaderCache("ld.so-1.7.0").files_of("liba.so.1").empty());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const LoaderCache cut(bytes.substr(0, size));  // the last name has no end
    CHECK(cut.files_of("liba.so.1").size() + cut.files_of("libb.so").size() < 2);
  }
  CHECK(LoaderCache(cache_of({{"liba.so.1", "relative"}})).files_of("liba.so.1").empty());
}

}  // namespace
}  // namespace hora::launcher
