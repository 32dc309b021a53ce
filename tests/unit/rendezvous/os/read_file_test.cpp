// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/os/read_file.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/os/fd.h"
#include "tests/support/catch.h"

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
