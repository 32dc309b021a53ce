// SPDX-License-Identifier: Apache-2.0
// Executes the agent behind a filter that answers ENOSYS to system calls of Linux 5.x, so that its
// other ways are tested. Ranks inherit the filter, which they do not notice.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

int main(int, char** argv) {
#define REFUSE(number)                                                      \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1), \
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS)
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      REFUSE(SYS_clone3),
      REFUSE(SYS_pidfd_open),
      REFUSE(SYS_pidfd_send_signal),
      REFUSE(SYS_close_range),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{sizeof filter / sizeof filter[0], filter};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    std::perror("seccomp");
    return 1;
  }
  ::execv(HORA_TEST_AGENT_PATH, argv);
  std::perror(HORA_TEST_AGENT_PATH);
  return 1;
}
