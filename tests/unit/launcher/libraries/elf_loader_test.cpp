// SPDX-License-Identifier: Apache-2.0
#include "launcher/libraries/elf_loader.h"

#include "tests/support/catch.h"
#include "tests/unit/launcher/libraries/small_elf.h"

namespace hora::launcher {
namespace {

const std::string kLoader = "/lib/ld-linux.so.2";

std::optional<std::string> parse(const std::string& bytes) {
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
  CHECK(parse(program()) == kLoader);
  CHECK(parse(program_of_32_bits()) == kLoader);
}

TEST_CASE("loader: other files have none") {
  CHECK_FALSE(parse(""));
  CHECK_FALSE(parse("#!/bin/sh\n" + std::string(1000, '\n')));
  CHECK_FALSE(parse(SmallElf{{"libc.so.6"}}.bytes()));
  std::string other = program();
  other[EI_DATA] = ELFDATA2MSB;
  CHECK_FALSE(parse(other));
}

TEST_CASE("loader: a damaged file never gives another name") {
  for (const std::string& whole : {program(), program_of_32_bits()}) {
    for (std::size_t size = 0; size < whole.size(); ++size) {
      const auto cut = parse(whole.substr(0, size));
      CHECK((!cut || *cut == kLoader));
    }
  }
  std::string endless = program_of_32_bits();
  endless.back() = 'x';
  CHECK_FALSE(parse(endless));
}

}  // namespace
}  // namespace hora::launcher
