// SPDX-License-Identifier: Apache-2.0
// The child borrows the parent's memory until it executes, so a large parent costs nothing and
// failures come back through a shared structure. In return the child may do nothing but system
// calls, and not through the C library: parent and child run at the same time, and both have the
// same errno. The kernel reports the end of the borrowing: it clears a word and wakes the waiting
// thread (CLONE_CHILD_CLEARTID, futex(2)).
#include "launcher/process/spawn.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "launcher/protocol/exit_code.h"
#include "rendezvous/os/process_end.h"

#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif

// The child runs in the parent's memory; a sanitizer's bookkeeping must not see it.
#define HORA_UNINSTRUMENTED __attribute__((no_sanitize("address", "thread", "undefined")))

namespace hora::launcher {

namespace {

// From the heap: a mapping of its own would cost two changes of the address space.
constexpr std::size_t kChildStackBytes = 16 * 1024;
// The child's inputs, and the place for its failure.
struct ChildPlan {
  const SpawnRequest* request;
  std::array<int, 3> stdio;
  int extra;            // above 3; -1: none
  int cgroup_procs_fd;  // joins the cgroup by writing here; -1: it was born in it, or stays
  pid_t parent;
  rlimit files;
  bool set_files;
  const unsigned long* cpus;  // null: as the parent
  std::size_t cpus_bytes;
  volatile SpawnStage failed_stage;
  volatile int errnum;
};

// A system call without the C library: no errno, no cancellation, nothing that a sanitizer
// intercepts. Negative: -errno.
#if defined(__x86_64__)
#define HORA_HAVE_RAW_CALL 1
HORA_UNINSTRUMENTED inline long raw_call(long number, long a = 0, long b = 0, long c = 0,
                                         long d = 0, long e = 0) {
  long result;
  register long fourth asm("r10") = d;
  register long fifth asm("r8") = e;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth)
               : "rcx", "r11", "memory");
  return result;
}
#elif defined(__aarch64__)
#define HORA_HAVE_RAW_CALL 1
HORA_UNINSTRUMENTED inline long raw_call(long number, long a = 0, long b = 0, long c = 0,
                                         long d = 0, long e = 0) {
  register long first asm("x0") = a;
  register long second asm("x1") = b;
  register long third asm("x2") = c;
  register long fourth asm("x3") = d;
  register long fifth asm("x4") = e;
  register long call asm("x8") = number;
  asm volatile("svc #0"
               : "+r"(first)
               : "r"(second), "r"(third), "r"(fourth), "r"(fifth), "r"(call)
               : "memory", "cc");
  return first;
}
#else
// Sets the errno that the parent has, too: such a parent is suspended meanwhile (clone_flags()).
HORA_UNINSTRUMENTED inline long raw_call(long number, long a = 0, long b = 0, long c = 0,
                                         long d = 0, long e = 0) {
  const long result = ::syscall(number, a, b, c, d, e);
  return result < 0 ? -errno : result;
}
#endif

HORA_UNINSTRUMENTED inline long word(const volatile void* pointer) {
  return reinterpret_cast<long>(pointer);
}

HORA_UNINSTRUMENTED void child_fail(ChildPlan* plan, SpawnStage stage, long result) {
  plan->errnum = static_cast<int>(-result);
  plan->failed_stage = stage;
  // The code is never reported: the failure travels in the plan.
  for (;;) raw_call(SYS_exit_group, kExitCannotExecute);
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
    if (raw_call(SYS_rt_sigaction, signal, 0, word(&present), kMaskBytes) != 0) continue;
    if (present.words[0] == reinterpret_cast<std::uintptr_t>(SIG_DFL)) continue;
    raw_call(SYS_rt_sigaction, signal, word(&wanted), 0, kMaskBytes);
  }
}

HORA_UNINSTRUMENTED void child_place_stdio(ChildPlan* plan) {
  // All three sources are 3 or more, so no step overwrites the source of a later one.
  for (int target = 0; target < 3; ++target) {
    const long done = raw_call(SYS_dup3, plan->stdio[target], target, 0);
    if (done < 0) child_fail(plan, SpawnStage::kDescriptors, done);
  }
  constexpr int kExtra = 3;
  if (plan->extra >= 0) {
    const long done = raw_call(SYS_dup3, plan->extra, kExtra, 0);
    if (done < 0) child_fail(plan, SpawnStage::kDescriptors, done);
  }
  // Linux before 5.9 lacks this call; our descriptors are close-on-exec anyway.
  raw_call(SYS_close_range, plan->extra >= 0 ? kExtra + 1 : 3, ~0u, 0);
}

HORA_UNINSTRUMENTED int child_main(void* argument) {
  auto* plan = static_cast<ChildPlan*>(argument);
  const SpawnRequest& request = *plan->request;
  const auto need = [plan](SpawnStage stage, long result) HORA_UNINSTRUMENTED {
    if (result < 0) child_fail(plan, stage, result);
  };
  // A group of its own makes the rank and its children one that can be signalled.
  if (request.new_session) {
    need(SpawnStage::kSession, raw_call(SYS_setsid));
  } else if (request.new_group) {
    need(SpawnStage::kSession, raw_call(SYS_setpgid, 0, 0));
  }
  if (request.die_with_parent) {
    need(SpawnStage::kParentDeath, raw_call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL));
    // The parent may have died before the call above; then no signal arrives any more.
    if (raw_call(SYS_getppid) != plan->parent) need(SpawnStage::kParentDeath, -ESRCH);
  }
  if (plan->cgroup_procs_fd >= 0) {
    need(SpawnStage::kCgroup, raw_call(SYS_write, plan->cgroup_procs_fd, word("0"), 1));
  }
  // By descriptor: the directory may have been moved since it was opened.
  if (request.working_directory_fd >= 0) {
    need(SpawnStage::kDirectory, raw_call(SYS_fchdir, request.working_directory_fd));
  }
  child_place_stdio(plan);
  if (request.takes_terminal) need(SpawnStage::kSession, raw_call(SYS_ioctl, 0, TIOCSCTTY, 0));
  if (plan->set_files) {
    need(SpawnStage::kLimits, raw_call(SYS_prlimit64, 0, RLIMIT_NOFILE, word(&plan->files), 0));
  }
  // Refused only if all of them have been taken from us, and then the kernel has moved us itself.
  if (plan->cpus != nullptr) {
    raw_call(SYS_sched_setaffinity, 0, static_cast<long>(plan->cpus_bytes), word(plan->cpus));
  }
  if (request.resets_signals) child_reset_signals();
  // The parent has blocked all signals for the child's sake.
  const std::uint64_t no_signals = 0;
  raw_call(SYS_rt_sigprocmask, SIG_SETMASK, word(&no_signals), 0, sizeof no_signals);
  need(SpawnStage::kExecute,
       raw_call(SYS_execve, word(request.program), word(request.argv), word(request.envp)));
  return 0;
}

// The arguments of clone3 since Linux 5.7. <linux/sched.h> of Ubuntu 20.04 (5.4), which is the
// sysroot's on Ubuntu, has its clone_args end after `tls`.
struct CloneArguments {
  std::uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
  std::uint64_t set_tid, set_tid_size, cgroup;
};

// clone3() returns in the child on a new stack without any C++ frame, hence the assembly: the child
// calls the function in a register that calls preserve, with the argument in the next one, and
// never returns from it.
#if defined(__x86_64__) && defined(SYS_clone3)
#define HORA_HAVE_CLONE3 1
HORA_UNINSTRUMENTED long clone3_call(CloneArguments* args, ChildPlan* plan) {
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
HORA_UNINSTRUMENTED long clone3_call(CloneArguments* args, ChildPlan* plan) {
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
// clone3, the child writes itself into the cgroup, and its parent is suspended meanwhile.
// `running` is cleared when the child has left this memory.
Cloned clone_child(ChildPlan* plan, char* stack, std::atomic<std::uint32_t>& running) {
  const SpawnRequest& request = *plan->request;
#if defined(HORA_HAVE_CLONE3) && defined(HORA_HAVE_RAW_CALL)
  {
    int pidfd = -1;
    CloneArguments args{};
    args.flags = CLONE_VM | CLONE_CHILD_CLEARTID;
    args.child_tid = reinterpret_cast<std::uintptr_t>(&running);
    args.exit_signal = SIGCHLD;
    args.stack = reinterpret_cast<std::uintptr_t>(stack);
    args.stack_size = kChildStackBytes;
    if (request.want_pidfd) {
      args.flags |= CLONE_PIDFD;
      args.pidfd = reinterpret_cast<std::uintptr_t>(&pidfd);
    }
    if (request.cgroup_fd >= 0) {
      args.flags |= CLONE_INTO_CGROUP;
      args.cgroup = static_cast<std::uint64_t>(request.cgroup_fd);
    }
    running.store(1);
    const long pid = clone3_call(&args, plan);
    if (pid > 0) return {pid, pidfd};
    running.store(0);
    // ENOSYS: no clone3; E2BIG and EINVAL: a kernel that does not know all fields; EPERM: a
    // sandbox. Any of them leads to the old call.
    const bool unsupported = pid == -ENOSYS || pid == -E2BIG || pid == -EINVAL || pid == -EPERM;
    if (!unsupported) return {pid, pidfd};
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
  const int pid =
      ::clone(child_main, stack + kChildStackBytes, CLONE_VM | CLONE_VFORK | SIGCHLD, plan);
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

struct Spawning::Child {
  ChildPlan plan{};
  alignas(16) std::array<char, kChildStackBytes> stack;  // not cleared: few of its pages are used
  std::atomic<std::uint32_t> running{0};  // the child's memory is ours; the kernel clears it
  std::optional<SpawnOutcome> failed;     // before there was a child
  Cloned cloned{-1, -1};

  void start(const SpawnRequest& request);
  void wait();
};

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

void Spawning::Child::start(const SpawnRequest& request) {
  const auto fail = [this](SpawnStage stage, int errnum) { failed = failure(stage, errnum); };
  std::array<os::Fd, 3> lifted;
  if (!lift_stdio(request, plan.stdio, lifted)) return fail(SpawnStage::kDescriptors, errno);
  os::Fd extra;
  plan.extra = request.extra_fd;
  // dup3() refuses equal numbers, and the flag would stay close-on-exec.
  if (plan.extra == 3) {
    extra = os::Fd(::fcntl(plan.extra, F_DUPFD_CLOEXEC, 4));
    if (!extra.valid()) return fail(SpawnStage::kDescriptors, errno);
    plan.extra = extra.get();
  }
  plan.request = &request;
  plan.cgroup_procs_fd = -1;
  plan.parent = ::getpid();
  plan.failed_stage = SpawnStage::kNone;
  if (request.open_files_limit) {
    if (::getrlimit(RLIMIT_NOFILE, &plan.files) != 0) return fail(SpawnStage::kLimits, errno);
    plan.files.rlim_cur = *request.open_files_limit;
    plan.set_files = true;
  }
  if (request.cpus != nullptr) {
    plan.cpus = request.cpus->data();
    plan.cpus_bytes = request.cpus->size() * sizeof(unsigned long);
  }
  // No handler of ours may run in the child while it shares our memory.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  cloned = clone_child(&plan, stack.data(), running);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// The kernel clears the word and wakes us when the child executes or ends; between our look and our
// sleep it cannot do so unseen, because futex(2) looks again. The deadline is the child's own: it
// does nothing but system calls.
void Spawning::Child::wait() {
  while (running.load(std::memory_order_acquire) != 0) {
    ::syscall(SYS_futex, &running, FUTEX_WAIT, 1, nullptr, nullptr, 0);
  }
}

Spawning::Spawning(const SpawnRequest& request) : child_(std::make_unique_for_overwrite<Child>()) {
  child_->start(request);
}

Spawning::Spawning(Spawning&&) noexcept = default;

// The child may still read what our caller is about to free.
Spawning::~Spawning() {
  if (child_ == nullptr) return;
  const SpawnOutcome outcome = finish();
  if (!outcome.ok()) return;
  ::kill(outcome.pid, SIGKILL);
  reap(outcome.pid);
}

SpawnOutcome Spawning::finish() {
  const std::unique_ptr<Child> child = std::move(child_);
  if (child->failed) return *std::move(child->failed);
  child->wait();
  os::Fd pidfd(child->cloned.pidfd);
  const SpawnStage failed = child->plan.failed_stage;
  const long pid = child->cloned.pid;
  if (pid < 0) {
    return failure(failed == SpawnStage::kNone ? SpawnStage::kClone : failed,
                   static_cast<int>(-pid));
  }
  if (failed != SpawnStage::kNone) {
    reap(static_cast<pid_t>(pid));  // no other code knows its pid
    return failure(failed, child->plan.errnum);
  }
  SpawnOutcome outcome;
  outcome.pid = static_cast<pid_t>(pid);
  outcome.pidfd = std::move(pidfd);
  return outcome;
}

SpawnOutcome spawn(const SpawnRequest& request) { return Spawning(request).finish(); }

}  // namespace hora::launcher
