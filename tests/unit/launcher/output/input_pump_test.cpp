// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/input_pump.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
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

// A terminal: what is written to the master is typed.
struct Terminal {
  os::Fd master{::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)};
  std::string name;
  Terminal() {
    REQUIRE(master.valid());
    REQUIRE(::grantpt(master.get()) == 0);
    REQUIRE(::unlockpt(master.get()) == 0);
    char path[64];
    REQUIRE(::ptsname_r(master.get(), path, sizeof path) == 0);
    name = path;
  }
};

bool readable(int fd, std::chrono::milliseconds within) {
  pollfd poller{fd, POLLIN, 0};
  return ::poll(&poller, 1, static_cast<int>(within.count())) == 1;
}

// A background job that hands on what it gets.
[[noreturn]] void hand_on(int terminal, int to) {
  const auto loop = std::move(*os::EventLoop::create());
  InputPump* own = nullptr;
  InputPump pump(*loop, terminal, [&](std::string_view bytes) {
    loop->post([&, n = bytes.size()] { own->delivered(n); });
    return ::write(to, bytes.data(), bytes.size()) >= 0 ? 1 : 0;
  });
  own = &pump;
  pump.start();
  (void)!::write(to, ".", 1);
  (void)loop->run();
  ::_exit(1);
}

// In a shell: the failure; 0 when there was none. `job` writes to the other end of `from`.
int give_and_take_the_terminal(int terminal, int master, pid_t job, int from) {
  const auto comes = [&](const std::string& text) {
    std::string got(text.size(), ' ');
    return readable(from, 60s) &&
           ::read(from, got.data(), got.size()) == static_cast<ssize_t>(got.size()) && got == text;
  };
  const auto type = [&](std::string_view text) {
    (void)!::write(master, text.data(), text.size());
  };
  ::signal(SIGTTOU, SIG_IGN);
  if (!comes(".")) return 1;
  type("first\n");
  if (readable(from, 100ms)) return 2;
  if (::tcsetpgrp(terminal, job) != 0 || !comes("first\n")) return 3;
  // Taken back while the job waits for more, without a signal.
  if (::tcsetpgrp(terminal, ::getpgrp()) != 0) return 4;
  type("second\n");
  if (readable(from, 500ms)) return 5;
  if (::waitpid(job, nullptr, WNOHANG | WUNTRACED) != 0) return 6;
  if (::tcsetpgrp(terminal, job) != 0 || !comes("second\n")) return 7;
  return 0;
}

}  // namespace

TEST_CASE("what is typed waits for a job in the background, which is not stopped by reading") {
  const Terminal terminal;
  const pid_t shell = ::fork();
  REQUIRE(shell >= 0);
  if (shell == 0) {
    int fds[2];
    ::setsid();
    const int own = ::open(terminal.name.c_str(), O_RDWR | O_CLOEXEC);  // the session's from now on
    if (own < 0 || ::pipe2(fds, O_CLOEXEC) != 0) ::_exit(100);
    const pid_t job = ::fork();
    if (job == 0) {
      ::setpgid(0, 0);
      hand_on(own, fds[1]);
    }
    ::setpgid(job, job);
    const int wrong = give_and_take_the_terminal(own, terminal.master.get(), job, fds[0]);
    ::kill(job, SIGKILL);
    ::_exit(wrong);
  }
  int status = 0;
  REQUIRE(::waitpid(shell, &status, 0) == shell);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a terminal of another session is read") {
  const Terminal terminal;
  const os::Fd end(::open(terminal.name.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  REQUIRE(end.valid());
  REQUIRE(::write(terminal.master.get(), "hello\n\x04", 7) == 7);  // and Ctrl-D
  Drain drain(end.get(), true);
  drain.run(20s);
  REQUIRE(drain.ended);
  CHECK(drain.got == "hello\n");
}

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

TEST_CASE("nothing is read beyond the window while the receiver takes nothing") {
  const os::Fd file = file_of(1'000'000);
  Drain drain(file.get(), false);
  drain.run(100ms);
  REQUIRE_FALSE(drain.ended);
  REQUIRE(drain.got.size() >= InputPump::kWindow);
  REQUIRE(drain.got.size() <= InputPump::kWindow + 16 * 1024);
}
