// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <thread>
#include <vector>

#include "launcher/process/program_search.h"
#include "tests/support/catch.h"

using namespace hora::launcher;
using hora::os::Fd;

namespace {

struct Child {
  std::vector<std::string> arguments;
  std::vector<std::string> environment{"PATH=/usr/bin:/bin"};
  SpawnRequest request;
  std::vector<char*> argv, envp;
  Fd null{::open("/dev/null", O_RDWR | O_CLOEXEC)};

  explicit Child(std::vector<std::string> words) : arguments(std::move(words)) {
    for (std::string& word : arguments) argv.push_back(word.data());
    argv.push_back(nullptr);
    for (std::string& entry : environment) envp.push_back(entry.data());
    envp.push_back(nullptr);
    request.program = arguments.front().c_str();
    request.argv = argv.data();
    request.envp = envp.data();
    request.stdin_fd = request.stdout_fd = request.stderr_fd = null.get();
  }
};

int exit_code(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string output_of(Child& child) {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  child.request.stdout_fd = write_end.get();
  const SpawnOutcome outcome = spawn(child.request);
  REQUIRE(outcome.ok());
  write_end.reset();
  std::string text;
  char chunk[4096];
  ssize_t got;
  while ((got = ::read(read_end.get(), chunk, sizeof chunk)) > 0) {
    text.append(chunk, static_cast<std::size_t>(got));
  }
  CHECK(exit_code(outcome.pid) == 0);
  return text;
}

}  // namespace

TEST_CASE("spawn runs a program") {
  Child child({"/bin/sh", "-c", "exit 42"});
  child.request.want_pidfd = true;
  const SpawnOutcome outcome = spawn(child.request);
  REQUIRE(outcome.ok());
  pollfd ended{outcome.pidfd.get(), POLLIN, 0};
  REQUIRE(outcome.pidfd.valid());
  CHECK(::poll(&ended, 1, 20'000) == 1);
  CHECK(exit_code(outcome.pid) == 42);
}

TEST_CASE("spawn says what failed, and leaves no child") {
  Child child({"/no/such/program"});
  SECTION("missing") {
    const SpawnOutcome outcome = spawn(child.request);
    CHECK(outcome.failed_stage == SpawnStage::kExecute);
    CHECK(outcome.errnum == ENOENT);
  }
  SECTION("not executable") {
    child.request.program = "/etc/passwd";
    const SpawnOutcome outcome = spawn(child.request);
    CHECK(outcome.failed_stage == SpawnStage::kExecute);
    CHECK(outcome.errnum == EACCES);
  }
  SECTION("no directory") {
    child.request.working_directory_fd = child.null.get();
    const SpawnOutcome outcome = spawn(child.request);
    CHECK(outcome.failed_stage == SpawnStage::kDirectory);
    CHECK(outcome.errnum == ENOTDIR);
  }
  SECTION("no cgroup") {
    child.request.program = "/bin/true";
    child.request.cgroup_fd = child.null.get();
    const SpawnOutcome outcome = spawn(child.request);
    CHECK(!outcome.ok());
  }
  SECTION("bad descriptor") {
    child.request.program = "/bin/true";
    child.request.stdout_fd = 987;
    const SpawnOutcome outcome = spawn(child.request);
    CHECK(outcome.failed_stage == SpawnStage::kDescriptors);
    CHECK(outcome.errnum == EBADF);
  }
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
  CHECK(errno == ECHILD);
}

TEST_CASE("spawn enters the directory and takes the environment") {
  const Fd directory(::open("/usr", O_PATH | O_DIRECTORY | O_CLOEXEC));
  Child child({"/bin/sh", "-c", "pwd; echo $PATH"});
  child.request.working_directory_fd = directory.get();
  CHECK(output_of(child) == "/usr\n/usr/bin:/bin\n");
}

TEST_CASE("standard streams may be given in any order") {
  Child child({"/bin/sh", "-c", "echo out; echo err >&2; cat"});
  child.request.stdin_fd = -1;  // -1: the caller's own
  child.request.stdin_fd = child.null.get();
  CHECK(output_of(child) == "out\n");
}

TEST_CASE("a child dies with the thread that made it") {
  pid_t pid = 0;
  Fd pidfd;
  std::thread([&] {
    Child child({"/bin/sleep", "1000"});
    child.request.die_with_parent = true;
    child.request.want_pidfd = true;
    SpawnOutcome outcome = spawn(child.request);
    REQUIRE(outcome.ok());
    pid = outcome.pid;
    pidfd = std::move(outcome.pidfd);
  }).join();
  pollfd ended{pidfd.get(), POLLIN, 0};
  CHECK(::poll(&ended, 1, 20'000) == 1);
  CHECK(exit_code(pid) == 128 + SIGKILL);
}

TEST_CASE("threads may spawn at the same time") {
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t, &wrong] {
      for (int i = 0; i < 50; ++i) {
        const int code = (t * 50 + i) % 256;
        Child child({"/bin/sh", "-c", "exit " + std::to_string(code)});
        const SpawnOutcome outcome = spawn(child.request);
        if (!outcome.ok() || exit_code(outcome.pid) != code) ++wrong[static_cast<std::size_t>(t)];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("the caller's signal mask stays") {
  sigset_t before;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  Child child({"/bin/true"});
  const SpawnOutcome outcome = spawn(child.request);
  sigset_t after;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int signal = 1; signal < 32; ++signal) {
    CHECK(::sigismember(&before, signal) == ::sigismember(&after, signal));
  }
  CHECK(exit_code(outcome.pid) == 0);
}

TEST_CASE("the search for a program") {
  const Fd root(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  CHECK(find_program("sh", "/nowhere:/bin", root.get()).value() == "/bin/sh");
  CHECK(find_program("sh", "bin", root.get()).value() == "bin/sh");
  CHECK(find_program("/bin/sh", "", root.get()).value() == "/bin/sh");
  CHECK(find_program("bin/sh", "", root.get()).value() == "bin/sh");
  CHECK(find_program("passwd", "/etc:/nowhere", root.get()).error().code ==
        hora::ErrorCode::kDenied);
  CHECK(find_program("no-such-program", "/bin::/usr/bin", root.get()).error().code ==
        hora::ErrorCode::kNotFound);
  CHECK(find_program("", "/bin", root.get()).error().code == hora::ErrorCode::kNotFound);
  CHECK(find_program("/etc", "", root.get()).error().code == hora::ErrorCode::kDenied);
  CHECK(find_program("/etc/passwd/x", "", root.get()).error().code == hora::ErrorCode::kNotFound);
}

TEST_CASE("one more descriptor, wherever it comes from, is 3 in the child") {
  for (const int source : {3, 20}) {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    const Fd read_end(::fcntl(ends[0], F_DUPFD_CLOEXEC, 10));
    Fd write_end(::fcntl(ends[1], F_DUPFD_CLOEXEC, 10));
    ::close(ends[0]);
    ::close(ends[1]);
    const Fd other(
        ::fcntl(source, F_DUPFD_CLOEXEC, 30));  // the process that had the number gets it back
    REQUIRE(::dup3(write_end.get(), source, O_CLOEXEC) == source);
    write_end.reset();
    Child child({"/bin/sh", "-c", "echo sent >&3; ! echo other 2>/dev/null >&4"});
    child.request.extra_fd = source;
    const SpawnOutcome outcome = spawn(child.request);
    if (other.valid()) {
      REQUIRE(::dup3(other.get(), source, O_CLOEXEC) == source);
    } else {
      ::close(source);
    }
    REQUIRE(outcome.ok());
    CHECK(exit_code(outcome.pid) == 0);
    char text[16] = {};
    CHECK(::read(read_end.get(), text, sizeof text) == 5);
    CHECK(std::string(text) == "sent\n");
  }
}

TEST_CASE("children start side by side, and each has its own answer") {
  std::vector<std::unique_ptr<Child>> children;
  std::vector<Spawning> spawning;
  for (int i = 0; i < 24; ++i) {
    const std::string program = i % 3 == 1 ? "/no/such/program" : "/bin/sh";
    children.push_back(std::make_unique<Child>(
        std::vector<std::string>{program, "-c", "exit " + std::to_string(i)}));
    if (i % 3 == 2) children.back()->request.stdout_fd = 4'000;  // no such descriptor
    errno = 0;
    spawning.emplace_back(children.back()->request);
  }
  // Calls that fail while the children run: errno is the parent's alone.
  int wrong = 0;
  for (int i = 0; i < 2'000; ++i) {
    wrong += ::open("/dev/null/x", O_RDONLY | O_CLOEXEC) >= 0 || errno != ENOTDIR;
  }
  CHECK(wrong == 0);
  for (int i = 0; i < 24; ++i) {
    const SpawnOutcome outcome = spawning[static_cast<std::size_t>(i)].finish();
    if (i % 3 == 1) {
      CHECK(outcome.failed_stage == SpawnStage::kExecute);
      CHECK(outcome.errnum == ENOENT);
    } else if (i % 3 == 2) {
      CHECK(outcome.failed_stage == SpawnStage::kDescriptors);
      CHECK(outcome.errnum == EBADF);
    } else {
      REQUIRE(outcome.ok());
      CHECK(exit_code(outcome.pid) == i);
    }
  }
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
  CHECK(errno == ECHILD);
}

TEST_CASE("a child whose outcome is not read is killed") {
  Child child({"/bin/sleep", "600"});
  { const Spawning unasked(child.request); }
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
  CHECK(errno == ECHILD);
}
