// SPDX-License-Identifier: Apache-2.0
// Starts a process with vfork semantics: the child borrows the parent's memory until it executes,
// so a large parent costs nothing and failures come back through a shared structure. In return the
// child may do nothing but system calls.
#include "launcher/process/spawn.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "launcher/protocol/exit_code.h"
#include "rendezvous/os/syscall_numbers.h"

#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif

// The child runs in the parent's memory; a sanitizer's bookkeeping must not see it.
#define HORA_UNINSTRUMENTED __attribute__((no_sanitize("address", "thread", "undefined")))

namespace hora::launcher {

namespace {

constexpr std::size_t kChildStackBytes = 64 * 1024;
// What the child reads, and where it leaves its failure. The plan is on the parent's stack, which
// the parent does not touch until the child has executed or ended.
struct ChildPlan {
  const SpawnRequest* request;
  std::array<int, 3> stdio;
  int extra;            // above 3; -1: none
  int cgroup_procs_fd;  // joins the cgroup by writing here; -1: it was born in it, or stays
  pid_t parent;
  rlimit files;
  bool set_files;
  volatile SpawnStage failed_stage;
  volatile int errnum;
};

// Raw system calls only: no allocation, no lock, nothing that a sanitizer intercepts.
HORA_UNINSTRUMENTED void child_fail(ChildPlan* plan, SpawnStage stage) {
  plan->errnum = errno;
  plan->failed_stage = stage;
  // The code is never reported: the failure travels in the plan.
  for (;;) ::syscall(SYS_exit_group, kExitCannotExecute);
}

HORA_UNINSTRUMENTED void child_reset_signals() {
  // A kernel sigaction of all zeros means "default", whatever the order of its fields on this
  // architecture.
  struct {
    std::uint64_t words[8];
  } wanted = {}, present = {};
  constexpr std::size_t kMaskBytes = 8;
  for (int signal = 1; signal <= 64; ++signal) {
    if (signal == SIGKILL || signal == SIGSTOP) continue;
    // execve() resets handlers to the default by itself, but signals that are ignored stay ignored.
    if (::syscall(SYS_rt_sigaction, signal, nullptr, &present, kMaskBytes) != 0) continue;
    if (present.words[0] == reinterpret_cast<std::uintptr_t>(SIG_DFL)) continue;
    ::syscall(SYS_rt_sigaction, signal, &wanted, nullptr, kMaskBytes);
  }
}

HORA_UNINSTRUMENTED void child_place_stdio(ChildPlan* plan) {
  // All three sources are 3 or more, so no step overwrites the source of a later one.
  for (int target = 0; target < 3; ++target) {
    if (::syscall(SYS_dup3, plan->stdio[target], target, 0) < 0) {
      child_fail(plan, SpawnStage::kDescriptors);
    }
  }
  constexpr int kExtra = 3;
  if (plan->extra >= 0 && ::syscall(SYS_dup3, plan->extra, kExtra, 0) < 0) {
    child_fail(plan, SpawnStage::kDescriptors);
  }
  // Linux before 5.9 lacks this call; our descriptors are close-on-exec anyway.
  ::syscall(SYS_close_range, plan->extra >= 0 ? kExtra + 1u : 3u, ~0u, 0u);
}

HORA_UNINSTRUMENTED int child_main(void* argument) {
  auto* plan = static_cast<ChildPlan*>(argument);
  const SpawnRequest& request = *plan->request;
  // A session of its own makes the rank and its children one group that can be signalled.
  if (request.new_session && ::syscall(SYS_setsid) < 0) child_fail(plan, SpawnStage::kSession);
  if (request.die_with_parent) {
    if (::syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) {
      child_fail(plan, SpawnStage::kParentDeath);
    }
    // The parent may have died before the call above; then no signal arrives any more.
    if (::syscall(SYS_getppid) != plan->parent) {
      errno = ESRCH;
      child_fail(plan, SpawnStage::kParentDeath);
    }
  }
  if (plan->cgroup_procs_fd >= 0 && ::syscall(SYS_write, plan->cgroup_procs_fd, "0", 1) != 1) {
    child_fail(plan, SpawnStage::kCgroup);
  }
  // By descriptor: the directory may have been moved since it was opened.
  if (request.working_directory_fd >= 0 &&
      ::syscall(SYS_fchdir, request.working_directory_fd) != 0) {
    child_fail(plan, SpawnStage::kDirectory);
  }
  child_place_stdio(plan);
  if (plan->set_files && ::syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &plan->files, nullptr) != 0) {
    child_fail(plan, SpawnStage::kLimits);
  }
  child_reset_signals();
  // The parent has blocked all signals for the child's sake.
  const std::uint64_t no_signals = 0;
  ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &no_signals, nullptr, sizeof no_signals);
  ::syscall(SYS_execve, request.program, request.argv, request.envp);
  child_fail(plan, SpawnStage::kExecute);
  return 0;
}

// One stack per thread, which is kept: the parent is suspended while its child uses it.
class ChildStack {
 public:
  ChildStack() {
    memory_ = ::mmap(nullptr, kChildStackBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  }
  ~ChildStack() {
    if (valid()) ::munmap(memory_, kChildStackBytes);
  }
  ChildStack(const ChildStack&) = delete;
  ChildStack& operator=(const ChildStack&) = delete;
  bool valid() const { return memory_ != MAP_FAILED; }
  char* base() const { return static_cast<char*>(memory_); }
  char* top() const { return base() + kChildStackBytes; }

 private:
  void* memory_;
};

// clone3() returns in the child on a new stack without any C++ frame, hence the assembly: the child
// calls the function in a register that calls preserve, with the argument in the next one, and
// never returns from it.
#if defined(__x86_64__) && defined(SYS_clone3)
#define HORA_HAVE_CLONE3 1
HORA_UNINSTRUMENTED long clone3_call(clone_args* args, ChildPlan* plan) {
  long result;
  register int (*function)(void*) asm("r12") = child_main;
  register void* argument asm("r13") = plan;
  asm volatile(
      "syscall\n\t"
      "testq %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "xorl %%ebp, %%ebp\n\t"
      "movq %%r13, %%rdi\n\t"
      "callq *%%r12\n\t"
      "hlt\n"
      "1:"
      : "=a"(result)
      : "a"(static_cast<long>(SYS_clone3)), "D"(args), "S"(sizeof *args), "r"(function),
        "r"(argument)
      : "rcx", "r11", "memory");
  return result;
}
#elif defined(__aarch64__) && defined(SYS_clone3)
#define HORA_HAVE_CLONE3 1
HORA_UNINSTRUMENTED long clone3_call(clone_args* args, ChildPlan* plan) {
  register long result asm("x0") = reinterpret_cast<long>(args);
  register std::size_t size asm("x1") = sizeof *args;
  register long number asm("x8") = SYS_clone3;
  register int (*function)(void*) asm("x20") = child_main;
  register void* argument asm("x21") = plan;
  asm volatile(
      "svc #0\n\t"
      "cbnz x0, 1f\n\t"
      "mov x29, xzr\n\t"
      "mov x0, x21\n\t"
      "blr x20\n\t"
      "brk #0\n"
      "1:"
      : "+r"(result)
      : "r"(size), "r"(number), "r"(function), "r"(argument)
      : "memory", "cc");
  return result;
}
#endif

struct Cloned {
  long pid;  // or -errno
  int pidfd;
};

// Linux 5.7 creates the child inside its cgroup. With older kernels, and in sandboxes that refuse
// clone3, the child writes itself into the cgroup.
Cloned clone_child(ChildPlan* plan, const ChildStack& stack) {
  const SpawnRequest& request = *plan->request;
#ifdef HORA_HAVE_CLONE3
  {
    int pidfd = -1;
    clone_args args{};
    args.flags = CLONE_VM | CLONE_VFORK;
    args.exit_signal = SIGCHLD;
    args.stack = reinterpret_cast<std::uintptr_t>(stack.base());
    args.stack_size = kChildStackBytes;
    if (request.want_pidfd) {
      args.flags |= CLONE_PIDFD;
      args.pidfd = reinterpret_cast<std::uintptr_t>(&pidfd);
    }
    if (request.cgroup_fd >= 0) {
      args.flags |= CLONE_INTO_CGROUP;
      args.cgroup = static_cast<std::uint64_t>(request.cgroup_fd);
    }
    const long pid = clone3_call(&args, plan);
    // ENOSYS: no clone3; E2BIG and EINVAL: a kernel that does not know all fields; EPERM: a
    // sandbox. Any of them leads to the old call.
    const bool unsupported = pid == -ENOSYS || pid == -E2BIG || pid == -EINVAL || pid == -EPERM;
    if (pid > 0 || !unsupported) return {pid, pidfd};
  }
#endif
  os::Fd procs;
  if (request.cgroup_fd >= 0) {
    procs = os::Fd(::openat(request.cgroup_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC));
    if (!procs.valid()) {
      plan->failed_stage = SpawnStage::kCgroup;
      return {-errno, -1};
    }
  }
  plan->cgroup_procs_fd = procs.get();
  // CLONE_VFORK suspends this thread until the child has executed or ended.
  const int pid = ::clone(child_main, stack.top(), CLONE_VM | CLONE_VFORK | SIGCHLD, plan);
  if (pid < 0) return {-errno, -1};
  int pidfd = -1;
  if (request.want_pidfd) pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  return {pid, pidfd};
}

// The caller may use 0, 1 or 2 as sources in any order, so lift those above 2.
bool lift_stdio(const SpawnRequest& request, std::array<int, 3>& stdio,
                std::array<os::Fd, 3>& lifted) {
  stdio = {request.stdin_fd, request.stdout_fd, request.stderr_fd};
  for (int i = 0; i < 3; ++i) {
    if (stdio[i] >= 3) continue;
    const int source = stdio[i] < 0 ? i : stdio[i];
    lifted[i] = os::Fd(::fcntl(source, F_DUPFD_CLOEXEC, 3));
    if (!lifted[i].valid()) return false;
    stdio[i] = lifted[i].get();
  }
  return true;
}

SpawnOutcome failure(SpawnStage stage, int errnum) {
  SpawnOutcome outcome;
  outcome.failed_stage = stage;
  outcome.errnum = errnum;
  return outcome;
}

void reap(pid_t pid) {
  int status;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace

SpawnOutcome spawn(const SpawnRequest& request) {
  static thread_local ChildStack stack;
  if (!stack.valid()) return failure(SpawnStage::kClone, ENOMEM);

  ChildPlan plan{};
  std::array<os::Fd, 3> lifted;
  if (!lift_stdio(request, plan.stdio, lifted)) return failure(SpawnStage::kDescriptors, errno);
  os::Fd extra;
  plan.extra = request.extra_fd;
  // dup3() refuses equal numbers, and the flag would stay close-on-exec.
  if (plan.extra == 3) {
    extra = os::Fd(::fcntl(plan.extra, F_DUPFD_CLOEXEC, 4));
    if (!extra.valid()) return failure(SpawnStage::kDescriptors, errno);
    plan.extra = extra.get();
  }
  plan.request = &request;
  plan.cgroup_procs_fd = -1;
  plan.parent = ::getpid();
  plan.failed_stage = SpawnStage::kNone;
  if (request.open_files_limit) {
    if (::getrlimit(RLIMIT_NOFILE, &plan.files) != 0) return failure(SpawnStage::kLimits, errno);
    plan.files.rlim_cur = *request.open_files_limit;
    plan.set_files = true;
  }

  // No handler of ours may run in the child while it shares our memory.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const Cloned child = clone_child(&plan, stack);
  // The child has failed before execve(); no other code knows its pid, so reap it here.
  if (child.pid > 0 && plan.failed_stage != SpawnStage::kNone) {
    reap(static_cast<pid_t>(child.pid));
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);

  os::Fd pidfd(child.pidfd);
  const SpawnStage failed = plan.failed_stage;
  if (child.pid < 0) {
    const SpawnStage stage = failed == SpawnStage::kNone ? SpawnStage::kClone : failed;
    return failure(stage, static_cast<int>(-child.pid));
  }
  if (failed != SpawnStage::kNone) return failure(failed, plan.errnum);
  SpawnOutcome outcome;
  outcome.pid = static_cast<pid_t>(child.pid);
  outcome.pidfd = std::move(pidfd);
  return outcome;
}

}  // namespace hora::launcher
