// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/guard.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "launcher/process/piped_child.h"
#include "launcher/process/process_table.h"
#include "launcher/protocol/exit_code.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher;

namespace {

constexpr std::chrono::milliseconds kLong{600'000};

PipedChild start(const std::string& line, std::chrono::milliseconds timeout = kLong) {
  auto child = PipedChild::start_guarded({"/bin/sh", "-c", line}, timeout);
  REQUIRE(child);
  return *std::move(child);
}

int wait_for(PipedChild& child) {
  pollfd ended{child.ended_fd(), POLLIN, 0};
  REQUIRE(::poll(&ended, 1, static_cast<int>(kLong.count())) == 1);
  return child.try_wait().value_or(-1);
}

// Of a guard that was left: it is still a child of this process.
int wait_for(pid_t guard) {
  int status = 0;
  REQUIRE(::waitpid(guard, &status, 0) == guard);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::string read_all(int fd) {
  std::string text;
  char chunk[256];
  ssize_t got = 0;
  pollfd readable{fd, POLLIN, 0};
  while (::poll(&readable, 1, -1) == 1 && (got = ::read(fd, chunk, sizeof chunk)) > 0) {
    text.append(chunk, static_cast<std::size_t>(got));
  }
  return text;
}

}  // namespace

TEST_CASE("a guard ends as its program does") {
  PipedChild seven = start("read -r line; exit $line");
  REQUIRE(::write(seven.stdin_fd.get(), "7\n", 2) == 2);
  CHECK(wait_for(seven) == 7);
  PipedChild killed = start("kill -9 $$");
  CHECK(wait_for(killed) == kExitSignalBase + SIGKILL);
  // What it prints comes, and its end: the guard holds no writing end.
  PipedChild prints = start("echo word");
  CHECK(read_all(prints.stdout_fd.get()) == "word\n");
  CHECK(wait_for(prints) == 0);
}

TEST_CASE("a guard says that its program does not start") {
  const auto child = PipedChild::start_guarded({"/proc/self/mem"}, kLong);
  REQUIRE_FALSE(child);
}

TEST_CASE("a guard and its program are asked to end, and are killed, together") {
  PipedChild asked = start("echo up; exec sleep 1000");
  char up = 0;
  pollfd readable{asked.stdout_fd.get(), POLLIN, 0};
  REQUIRE(::poll(&readable, 1, static_cast<int>(kLong.count())) == 1);
  REQUIRE(::read(asked.stdout_fd.get(), &up, 1) == 1);
  asked.ask_to_end();
  CHECK(wait_for(asked) == kExitSignalBase + SIGTERM);
  PipedChild dropped = start("trap '' TERM; sleep 1000");
  const pid_t group = dropped.pid();
  dropped = PipedChild();
  CHECK((::kill(-group, 0) != 0 || ::getpgid(group) < 0));
}

TEST_CASE("a program that was left ends by itself, and its last words do not kill it") {
  PipedChild child = start("read -r line; echo last >&2 && echo words && exit 3");
  const pid_t guard = child.pid();
  child.leave();
  CHECK(wait_for(guard) == 3);
}

TEST_CASE("a program that was left and goes on is ended") {
  PipedChild child = start("exec sleep 1000", std::chrono::milliseconds{50});
  const pid_t guard = child.pid();
  child.leave();
  CHECK(wait_for(guard) == kExitSignalBase + SIGTERM);
}

namespace {

// A program that leaves a process of another session, prints its number, and goes on as requested.
PipedChild start_that_leaves(const std::string& then) {
  auto child = PipedChild::start_confined(
      {"/bin/sh", "-c", "setsid sh -c 'echo $$; exec sleep 1000' & read -r never; " + then});
  REQUIRE(child);
  return *std::move(child);
}

pid_t read_number(int fd) {
  std::string line;
  char next = 0;
  pollfd readable{fd, POLLIN, 0};
  while (::poll(&readable, 1, static_cast<int>(kLong.count())) == 1 && ::read(fd, &next, 1) == 1 &&
         next != '\n') {
    line.push_back(next);
  }
  return std::stoi(line);
}

bool is_gone(pid_t pid) { return ::kill(pid, 0) != 0 && errno == ESRCH; }

// It has been killed; on a busy machine, its end may come after the guard's. A zombie has ended,
// too: its new parent may be slow to reap it.
bool ends(pid_t pid) {
  for (int look = 0; look < 20'000; ++look) {
    const auto process = read_process(pid);
    if (!process || process->is_zombie()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace

TEST_CASE("a confined program ends with all that it has started") {
  PipedChild child = start_that_leaves("exit 5");
  const pid_t left = read_number(child.stdout_fd.get());
  CHECK_FALSE(is_gone(left));
  child.stdin_fd.reset();
  CHECK(wait_for(child) == 5);
  CHECK(ends(left));
}

TEST_CASE("a confined program that is dropped ends with all that it has started") {
  PipedChild child = start_that_leaves("exec sleep 1000");
  const pid_t left = read_number(child.stdout_fd.get());
  const pid_t guard = child.pid();
  child = PipedChild();
  CHECK(is_gone(guard));
  CHECK(ends(left));
}

TEST_CASE("what a confined program has started ends although its guard was killed") {
  PipedChild child = start_that_leaves("exec sleep 1000");
  const pid_t left = read_number(child.stdout_fd.get());
  ::kill(child.pid(), SIGKILL);
  pollfd ended{child.ended_fd(), POLLIN, 0};
  REQUIRE(::poll(&ended, 1, static_cast<int>(kLong.count())) == 1);
  CHECK(child.ended() == kExitSignalBase + SIGKILL);
  child = PipedChild();
  CHECK(ends(left));
}

TEST_CASE("a confined program that leaves nothing ends as it does") {
  auto child = PipedChild::start_confined({"/bin/sh", "-c", "echo word; exit 3"});
  REQUIRE(child);
  CHECK(read_all(child->stdout_fd.get()) == "word\n");
  CHECK(wait_for(*child) == 3);
  CHECK_FALSE(PipedChild::start_confined({"/proc/self/mem"}));
}
