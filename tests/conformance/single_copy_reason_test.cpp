// SPDX-License-Identifier: Apache-2.0
// Why the ranks of a host do not read each other's memory: what really forbids it is found, and
// told on every rank.
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"
#include "collectives/backends/shm/read_access.h"
#include "processes.h"
#include "tensors.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::test;
using collectives::Communicator;

namespace {

// From now on the call fails with this error, for this process.
void forbid_reading(int error) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{sizeof code / sizeof code[0], code};
  check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
  check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "a seccomp filter");
}

bool can_have_user_namespaces() {
  const pid_t child = fork();
  if (child == 0) _exit(unshare(CLONE_NEWUSER) == 0 ? 0 : 1);
  int status = 1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

std::string note_of(const Communicator& communicator) {
  std::string found;
  for (const auto& [id, note] : communicator.engine().backends().notes()) {
    if (id == "shm" && note.find("single copy") != std::string::npos) found += note;
  }
  return found;
}

// `on_rank_1` happens to that rank before it meets the others. Every rank must then say `expected`,
// and add up large tensors all the same.
void expect_note(const std::function<void()>& on_rank_1, const std::string& expected) {
  WorldOptions options;
  options.size = 2;
  options.backends = "shm";
  options.adjust = [&](collectives::Settings& settings) {
    if (settings.rank == 1) on_rank_1();
  };
  const auto results = run_processes(options, [&](Communicator& communicator) {
    const std::string note = note_of(communicator);
    check(note.find(expected) != std::string::npos, "expected: " + expected + "; found: " + note);
    Tensor tensor(HORA_FLOAT32, {100'000});
    fill(tensor, rank_of(communicator));
    Call(communicator, reduce_request("sum", tensor, tensor)).finish();
    check(tensor.get(99'999) == reduced(HORA_FLOAT32, HORA_SUM, {0, 1}, 99'999), "a wrong sum");
  });
  for (const ProcessResult& result : results) {
    CHECK(result.text == "");
    CHECK(result.code == 0);
    CHECK(result.signal == 0);
  }
}

}  // namespace

TEST_CASE("single copy: the reason why it is not used") {
  if (!collectives::shm::obstacle_here().empty()) return;  // all ranks would have that reason
  setenv("HORA_SHM_SINGLE_COPY", "0", 1);
  expect_note([] {}, "no single copy: rank 0: HORA_SHM_SINGLE_COPY is 0");
  setenv("HORA_SHM_SINGLE_COPY", "1", 1);
  const std::string of_rank_1 = "no single copy: rank 1: it may not read the memory of rank 0: ";
  expect_note([] { forbid_reading(EPERM); },
              of_rank_1 + "a seccomp filter forbids process_vm_readv");
  expect_note([] { forbid_reading(ENOSYS); }, of_rank_1 + "process_vm_readv is missing");
  if (can_have_user_namespaces()) {
    expect_note([] { check(unshare(CLONE_NEWUSER) == 0, "unshare"); },
                of_rank_1 + "the other process is in another user namespace");
  }
  unsetenv("HORA_SHM_SINGLE_COPY");
}
