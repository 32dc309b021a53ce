// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/captured_run.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <thread>

#include "launcher/process/piped_child.h"
#include "launcher/protocol/exit_code.h"
#include "rendezvous/os/files.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher;

namespace {

constexpr Milliseconds kEnough{600'000};  // longer than a test may take
constexpr Milliseconds kTooShort{300};

Result<CapturedRun> run_line(const std::string& line, Milliseconds timeout = kEnough) {
  return run_captured({"/bin/sh", "-c", line}, timeout);
}

// For this thread and its children the kernel is one without pidfds (Linux < 5.3).
bool refuse_pidfds() {
#define REFUSE(number)                                                      \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1), \
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS)
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      REFUSE(SYS_clone3),
      REFUSE(SYS_pidfd_open),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
#undef REFUSE
  sock_fprog program{sizeof filter / sizeof filter[0], filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// The filter ends with the thread.
void on_old_kernel(const std::function<void()>& work) {
  std::atomic<bool> refused{false};  // the thread sanitizer does not see this join
  std::thread([&] {
    refused = refuse_pidfds();
    if (refused) work();
  }).join();
  REQUIRE(refused);
}

// Gone, or a zombie that was not reaped yet. Where this process is the subreaper, it reaps.
bool has_ended(pid_t pid) {
  for (int i = 0; i < 20'000; ++i) {
    (void)::waitpid(pid, nullptr, WNOHANG);
    const auto stat = os::read_file("/proc/" + std::to_string(pid) + "/stat");
    if (!stat || stat->find(") Z ") != std::string::npos) return true;
    ::usleep(1'000);
  }
  return false;
}

}  // namespace

TEST_CASE("a program's output and exit code are kept") {
  const auto run = run_line("echo out; echo err >&2; exit 3");
  REQUIRE(run);
  CHECK(run->exit_code == 3);
  CHECK(run->output == "out\nerr\n");
  const auto killed = run_line("kill -TERM $$");
  REQUIRE(killed);
  CHECK(killed->exit_code == exit_code_of_signal(SIGTERM));
}

TEST_CASE("a program that reads its input finds it empty") {
  const auto run = run_captured({"cat"}, kEnough);
  REQUIRE(run);
  CHECK(run->exit_code == kExitOk);
  CHECK(run->output.empty());
}

TEST_CASE("a program that is not there") {
  const auto run = run_captured({"/no/such/program"}, kEnough);
  REQUIRE_FALSE(run);
  CHECK(run.error().code == ErrorCode::kNotFound);
}

TEST_CASE("more output than is kept does not stop the program") {
  const auto run = run_line("head -c 3000000 /dev/zero; exit 4");
  REQUIRE(run);
  CHECK(run->exit_code == 4);
  CHECK(run->output.size() == 1u << 20);
}

TEST_CASE("a program without end is given up on") {
  const std::string line = GENERATE("sleep 1000", "exec >&- 2>&-; sleep 1000", "exec yes");
  CAPTURE(line);
  const auto run = run_line(line, kTooShort);
  REQUIRE_FALSE(run);
  CHECK(run.error().code == ErrorCode::kTimedOut);
  CHECK(run.error().message == "/bin/sh -c '" + line + "' did not end within 300ms");
}

TEST_CASE("what a program leaves behind ends with it") {
  const auto run = run_line("sleep 1000 & echo $!");
  REQUIRE(run);
  CHECK(run->exit_code == kExitOk);
  CHECK(has_ended(static_cast<pid_t>(std::stol(run->output))));
}

TEST_CASE("a kernel without pidfds: the end is still seen, and still has a deadline") {
  Result<CapturedRun> quick = CapturedRun{};
  Result<CapturedRun> endless = CapturedRun{};
  int pidfd = 0;
  on_old_kernel([&] {
    quick = run_line("echo answer; exec >&- 2>&-; sleep 0.1; exit 7");
    endless = run_line("exec >&- 2>&-; sleep 1000", kTooShort);
    const auto child = PipedChild::start({"true"});
    if (child) pidfd = child->ended_fd();
  });
  CHECK(pidfd == -1);
  REQUIRE(quick);
  CHECK(quick->exit_code == 7);
  CHECK(quick->output == "answer\n");
  REQUIRE_FALSE(endless);
  CHECK(endless.error().code == ErrorCode::kTimedOut);
}
