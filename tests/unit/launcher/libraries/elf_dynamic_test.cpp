// SPDX-License-Identifier: Apache-2.0
#include "launcher/libraries/elf_dynamic.h"

#include "tests/support/catch.h"
#include "tests/unit/launcher/libraries/small_elf.h"

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

}  // namespace
}  // namespace hora::launcher
