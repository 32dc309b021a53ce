// SPDX-License-Identifier: Apache-2.0
// Two ranks in one session. What they start is theirs, wherever it has gone.
#include "launcher/agent/rank_processes.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <vector>

#include "launcher/process/process_table.h"
#include "rendezvous/os/fd.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher;

namespace {

constexpr const char* kMark = "HORA_AGENT_MARK=rank-processes-test";

[[noreturn]] void wait_for_the_end() {
  for (;;) ::pause();
}

// As an agent: what has lost its parents comes to us, and ends with the scope.
class Family {
 public:
  Family() {
    REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    said_ = os::Fd(ends[0]);
    say_ = os::Fd(ends[1]);
  }
  ~Family() {
    for (auto left = list_children(::getpid()).value(); !left.empty();
         left = list_children(::getpid()).value()) {
      for (const pid_t pid : left) {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
      }
    }
    ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  }
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  // A child that leads a group of our session and runs the task; children that return from the
  // task do what is asked, too. say() distinguishes them.
  pid_t start_rank(const std::function<void()>& task) {
    const pid_t pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      ::setpgid(0, 0);
      task();
      wait_for_the_end();
    }
    return pid;
  }
  void say() const {
    const pid_t own = ::getpid();
    (void)!::write(say_.get(), &own, sizeof own);
  }
  // As a program of its own, with this environment: another word when it has it.
  [[noreturn]] void say_with(std::vector<const char*> environment) const {
    say();
    environment.push_back(nullptr);
    const char* argv[] = {"/bin/sh", "-c", "printf x; read -r end", nullptr};
    int held[2];
    (void)!::pipe(held);  // NOLINT(android-cloexec-pipe): the shell keeps the end that it waits for
    ::dup2(held[0], 0);
    ::dup2(say_.get(), 1);
    ::execve(argv[0], const_cast<char**>(argv), const_cast<char**>(environment.data()));
    ::_exit(9);
  }
  pid_t receive() {
    pid_t said = -1;
    REQUIRE(::read(said_.get(), &said, sizeof said) == sizeof said);
    return said;
  }
  void read_a_word() {
    char word = 0;
    REQUIRE(::read(said_.get(), &word, 1) == 1);
  }

 private:
  os::Fd said_;
  os::Fd say_;
};

// Its parent ends, so that it becomes our child.
void lose_the_parent() {
  const pid_t parent = ::getpid();
  if (::fork() != 0) ::_exit(0);
  while (::getppid() == parent) ::usleep(100);
}

}  // namespace

TEST_CASE("a process belongs to the rank that it descends from") {
  Family family;
  const auto idle = [] {};
  const pid_t other = family.start_rank(idle);
  std::function<void()> task;
  SECTION("the rank itself") {
    task = [&] { family.say(); };
  }
  SECTION("a child in its group") {
    task = [&] {
      if (::fork() == 0) family.say();
    };
  }
  SECTION("a child of a group of its own") {
    task = [&] {
      if (::fork() != 0) return;
      ::setpgid(0, 0);
      if (::fork() == 0) family.say();
    };
  }
  SECTION("a child of a session of its own") {
    task = [&] {
      if (::fork() != 0) return;
      ::setsid();
      if (::fork() == 0) family.say();
    };
  }
  SECTION("an orphan in its group") {
    task = [&] {
      if (::fork() != 0) return;
      lose_the_parent();
      family.say();
    };
  }
  const pid_t rank = family.start_rank(task);
  const pid_t who = family.receive();
  CHECK(rank_of_process(who, {{3, other}, {5, rank}}, kMark) == 5);
  CHECK(rank_of_process(who, {{3, other}}, kMark) == -1);
}

TEST_CASE("the environment says whose an orphan is that has left its rank's group") {
  Family family;
  std::vector<const char*> environment;
  int wanted = -1;
  SECTION("of this job") {
    environment = {kMark, "HOROVOD_RANK=5"};
    wanted = 5;
  }
  SECTION("of another one") { environment = {"HORA_AGENT_MARK=another", "HOROVOD_RANK=5"}; }
  SECTION("of no rank") { environment = {kMark, "HOROVOD_RANK=51"}; }
  SECTION("emptied") {}
  const pid_t rank = family.start_rank([&] {
    if (::fork() != 0) return;
    ::setpgid(0, 0);
    lose_the_parent();
    family.say_with(environment);
  });
  const pid_t who = family.receive();
  family.read_a_word();
  CHECK(rank_of_process(who, {{3, -1}, {5, rank}}, kMark) == wanted);
}

TEST_CASE("a process that is gone, or not of this job, belongs to no rank") {
  Family family;
  const pid_t rank = family.start_rank([] {});
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  REQUIRE(::waitpid(gone, nullptr, 0) == gone);
  CHECK(rank_of_process(gone, {{0, rank}}, kMark) == -1);
  CHECK(rank_of_process(1, {{0, rank}}, kMark) == -1);
  CHECK(rank_of_process(::getpid(), {{0, rank}}, kMark) == -1);
}
