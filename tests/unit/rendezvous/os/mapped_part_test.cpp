// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/os/mapped_part.h"

#include <sys/mman.h>

#include <cstring>
#include <string>

#include "rendezvous/os/fd.h"
#include "tests/support/catch.h"

using namespace hora::os;

namespace {

constexpr std::size_t kLargePage = 64 * 1024;  // of some ARM64 kernels

std::string read_at(const Fd& file, off_t offset, std::size_t bytes) {
  std::string found(bytes, '\0');
  REQUIRE(::pread(file.get(), found.data(), bytes, offset) == static_cast<ssize_t>(bytes));
  return found;
}

}  // namespace

TEST_CASE("mapped part: begins at any offset, whatever the size of a page") {
  const Fd file(::memfd_create("part", MFD_CLOEXEC));
  REQUIRE(::ftruncate(file.get(), 3 * static_cast<off_t>(kLargePage)) == 0);
  const auto own = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (const std::size_t page : {own, kLargePage}) {
    for (const off_t offset : {0, 4096, 65536, 65536 + 3 * 4096, 128}) {
      INFO("offset " << offset << ", pages of " << page);
      MappedPart part(file.get(), offset, 4096, page);
      REQUIRE(part.valid());
      const std::string text = "at " + std::to_string(offset) + " of " + std::to_string(page);
      std::memcpy(part.data(), text.data(), text.size());
      CHECK(read_at(file, offset, text.size()) == text);
      std::memcpy(static_cast<char*>(part.data()) + 4096 - 3, "end", 3);
      CHECK(read_at(file, offset + 4096 - 3, 3) == "end");
    }
  }
}

TEST_CASE("mapped part: moves, and says when the file cannot be mapped") {
  const Fd file(::memfd_create("part", MFD_CLOEXEC));
  REQUIRE(::ftruncate(file.get(), 8192) == 0);
  MappedPart part;
  CHECK_FALSE(part.valid());
  part = MappedPart(file.get(), 4096, 16);
  REQUIRE(part.valid());
  const MappedPart moved = std::move(part);
  std::memcpy(moved.data(), "moved", 5);
  CHECK(read_at(file, 4096, 5) == "moved");
  CHECK_FALSE(MappedPart(-1, 0, 16).valid());
}
