#include "launcher/output/input_pump.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "rendezvous/os/fd.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher;
using namespace std::chrono_literals;

namespace {

// Everything the pump hands out, acknowledged at once or never.
struct Drain {
  explicit Drain(int fd, bool acknowledge) : acknowledges(acknowledge) {
    pump = std::make_unique<InputPump>(*loop, fd, [this](std::string_view bytes) {
      if (bytes.empty()) {
        ended = true;
        loop->stop();
        return 1;
      }
      got.append(bytes);
      if (acknowledges) {
        loop->post([this, n = bytes.size()] { pump->delivered(n); });
      }
      return 1;
    });
    pump->start();
  }
  void run(std::chrono::milliseconds limit) {
    loop->call_after(limit, [this] { loop->stop(); });
    REQUIRE(loop->run());
  }
  std::unique_ptr<os::EventLoop> loop = std::move(*os::EventLoop::create());
  bool acknowledges;
  std::string got;
  bool ended = false;
  std::unique_ptr<InputPump> pump;
};

os::Fd file_of(std::size_t bytes) {
  char name[] = "/tmp/hora-input-XXXXXX";
  os::Fd fd(::mkstemp(name));
  REQUIRE(fd.valid());
  ::unlink(name);
  const std::string text(bytes, 'i');
  REQUIRE(::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  REQUIRE(::lseek(fd.get(), 0, SEEK_SET) == 0);
  return fd;
}

}  // namespace

TEST_CASE("a regular file is read to its end") {
  const os::Fd file = file_of(300'000);
  Drain drain(file.get(), true);
  drain.run(20s);
  REQUIRE(drain.ended);
  REQUIRE(drain.got.size() == 300'000);
}

TEST_CASE("a pipe is read to its end") {
  int fds[2];
  REQUIRE(::pipe2(fds, O_CLOEXEC) == 0);
  const os::Fd reader(fds[0]);
  os::Fd writer(fds[1]);
  REQUIRE(::write(writer.get(), "hello", 5) == 5);
  writer.reset();
  Drain drain(reader.get(), true);
  drain.run(20s);
  REQUIRE(drain.ended);
  REQUIRE(drain.got == "hello");
}

TEST_CASE("nothing is read beyond the window while nobody takes it") {
  const os::Fd file = file_of(1'000'000);
  Drain drain(file.get(), false);
  drain.run(100ms);
  REQUIRE_FALSE(drain.ended);
  REQUIRE(drain.got.size() >= InputPump::kWindow);
  REQUIRE(drain.got.size() <= InputPump::kWindow + 16 * 1024);
}
