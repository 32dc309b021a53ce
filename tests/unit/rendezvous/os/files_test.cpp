// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/os/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "rendezvous/os/fd.h"
#include "tests/support/catch.h"

namespace hora::os {
namespace {

TEST_CASE("the folder of a path") {
  CHECK(folder_of("/usr/lib/libc.so") == "/usr/lib");
  CHECK(folder_of("/vmlinuz").empty());
  CHECK(folder_of("name") == "name");
}

TEST_CASE("links are followed, and what leads to nothing stays as it is") {
  const std::string folder =
      std::filesystem::temp_directory_path() / ("paths-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder + "/real");
  std::filesystem::create_directory_symlink(folder + "/real", folder + "/link");
  std::filesystem::create_symlink(folder + "/gone", folder + "/loose");
  CHECK(real_path(folder + "/link/../link") == real_path(folder) + "/real");
  CHECK(real_path(folder + "/loose") == folder + "/loose");
  CHECK(is_folder(folder + "/link"));
  CHECK_FALSE(is_folder(folder + "/loose"));
  CHECK_FALSE(is_folder("/proc/self/stat"));
  CHECK(names_in(folder) == std::vector<std::string>{"link", "loose", "real"});
  CHECK(names_in(folder + "/loose").empty());
  const auto none = list_folder(folder + "/loose");
  REQUIRE_FALSE(none);
  CHECK(none.error().errnum == ENOENT);
  CHECK(none.error().message.find(folder + "/loose") != std::string::npos);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace hora::os

namespace hora {

TEST_CASE("a file is read whole, whatever size it claims") {
  const auto status = os::read_file("/proc/self/status");
  REQUIRE(status);
  CHECK(status->find("\nVmRSS:") != std::string::npos);
  CHECK(status->back() == '\n');
}

TEST_CASE("what cannot be read is an error that names it") {
  CHECK(os::read_file("/no/such/file").error().code == ErrorCode::kNotFound);
  const auto folder = os::read_file("/proc/self");
  REQUIRE_FALSE(folder);
  CHECK(folder.error().message.find("reading /proc/self: ") == 0);
}

TEST_CASE("a process that has ended meanwhile") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  os::Fd reader(ends[0]);
  os::Fd writer(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte = 0;
    ::close(ends[1]);
    ::_exit(::read(ends[0], &byte, 1) == 0 ? 0 : 1);
  }
  REQUIRE(child > 0);
  const std::string path = "/proc/" + std::to_string(child) + "/environ";
  const os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  REQUIRE(file.valid());
  writer.reset();
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  const auto environment = os::read_to_end(file.get(), path);
  CHECK((!environment || environment->empty()));
}

TEST_CASE("a file without an end is given up at the limit") {
  const os::Fd zeros(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  const auto text = os::read_to_end(zeros.get(), "/dev/zero", 100'000);
  REQUIRE_FALSE(text);
  CHECK(text.error().message == "/dev/zero is larger than 100000 bytes");
}

}  // namespace hora

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
