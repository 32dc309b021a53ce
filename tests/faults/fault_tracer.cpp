// SPDX-License-Identifier: Apache-2.0
// Lets one system call of a running job fail, by ptrace, in programs that are linked statically,
// too:
//   fault_tracer ROLE CALL ERROR N LOG -- horarun ...
// ROLE is launcher, agent or rank (horarun, hora-agent, hora-perf, and what they fork); others run
// untraced, but with HORA_FOLLOW=all what they start is not. CALL is a name of the table below,
// "socket-read" (a read() of a socket) or "all"; ERROR a name such as ENOMEM. The N-th such call
// returns ERROR instead of being done; N = 0 lets all succeed. LOG gets the number of calls by
// name, and whether the fault was put. Exits as horarun does; 128 + signal where one ended it. The
// processes that it traces end with it.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#if defined(__x86_64__)

namespace {

struct Name {
  const char* name;
  long number;
};

// Calls that a program can be refused because a resource is missing, or that can be interrupted.
constexpr Name kCalls[] = {
    {"accept4", SYS_accept4},
    {"bind", SYS_bind},
    {"brk", SYS_brk},
    {"chdir", SYS_chdir},
    {"clone", SYS_clone},
    {"clone3", SYS_clone3},
    {"connect", SYS_connect},
    {"dup3", SYS_dup3},
    {"epoll_create1", SYS_epoll_create1},
    {"epoll_ctl", SYS_epoll_ctl},
    {"epoll_wait", SYS_epoll_wait},
    {"eventfd2", SYS_eventfd2},
    {"execve", SYS_execve},
    {"fchdir", SYS_fchdir},
    {"fcntl", SYS_fcntl},
    {"fork", SYS_fork},
    {"fstat", SYS_newfstatat},
    {"fsync", SYS_fsync},
    {"ftruncate", SYS_ftruncate},
    {"getcwd", SYS_getcwd},
    {"getdents64", SYS_getdents64},
    {"getrandom", SYS_getrandom},
    {"getsockname", SYS_getsockname},
    {"kill", SYS_kill},
    {"listen", SYS_listen},
    {"memfd_create", SYS_memfd_create},
    {"mkdir", SYS_mkdir},
    {"mkdirat", SYS_mkdirat},
    {"mmap", SYS_mmap},
    {"mprotect", SYS_mprotect},
    {"openat", SYS_openat},
    {"pidfd_open", SYS_pidfd_open},
    {"pipe2", SYS_pipe2},
    {"poll", SYS_poll},
    {"prctl", SYS_prctl},
    {"prlimit64", SYS_prlimit64},
    {"pwrite64", SYS_pwrite64},
    {"read", SYS_read},
    {"readlink", SYS_readlink},
    {"recvfrom", SYS_recvfrom},
    {"recvmsg", SYS_recvmsg},
    {"rename", SYS_rename},
    {"renameat", SYS_renameat},
    {"rmdir", SYS_rmdir},
    {"sendmsg", SYS_sendmsg},
    {"sendto", SYS_sendto},
    {"setpgid", SYS_setpgid},
    {"setsid", SYS_setsid},
    {"setsockopt", SYS_setsockopt},
    {"signalfd4", SYS_signalfd4},
    {"socket", SYS_socket},
    {"socketpair", SYS_socketpair},
    {"timerfd_create", SYS_timerfd_create},
    {"unlink", SYS_unlink},
    {"unlinkat", SYS_unlinkat},
    {"vfork", SYS_vfork},
    {"wait4", SYS_wait4},
    {"waitid", SYS_waitid},
    {"write", SYS_write},
    {"writev", SYS_writev},
};
constexpr Name kErrors[] = {
    {"EADDRINUSE", EADDRINUSE}, {"EAGAIN", EAGAIN}, {"EDQUOT", EDQUOT},
    {"EINTR", EINTR},           {"EIO", EIO},       {"EMFILE", EMFILE},
    {"ENOMEM", ENOMEM},         {"ESTALE", ESTALE}, {"ENOSPC", ENOSPC},
    {"EPERM", EPERM},           {"EROFS", EROFS},
};

enum class Role { kLauncher, kAgent, kRank, kOther };

struct Traced {
  Role role = Role::kOther;
  bool inside = false;                             // of a system call
  bool failing = false;                            // of one that is made to fail
  std::optional<unsigned long long> wanted_break;  // of a brk() that is made to fail
  bool loaded =
      true;  // no longer in the hands of the dynamic loader, which may crash without memory
};

[[noreturn]] void give_up(const char* what) {
  fprintf(stderr, "fault_tracer: %s: %s\n", what, strerror(errno));
  exit(77);
}

template <std::size_t kSize>
const Name* by_name(const Name (&table)[kSize], std::string_view name) {
  for (const Name& entry : table) {
    if (name == entry.name) return &entry;
  }
  return nullptr;
}

Role role_of(pid_t id) {
  const std::string link = "/proc/" + std::to_string(id) + "/exe";
  char path[PATH_MAX];
  const ssize_t size = readlink(link.c_str(), path, sizeof path);
  const std::string_view text(path, size > 0 ? static_cast<std::size_t>(size) : 0);
  const std::string_view file = text.substr(text.rfind('/') + 1);
  if (file.substr(0, 7) == "horarun") return Role::kLauncher;
  if (file.substr(0, 9) == "hora-perf") return Role::kRank;
  return file.substr(0, 10) == "hora-agent" || file.substr(0, 6) == "agent-" ? Role::kAgent
                                                                             : Role::kOther;
}

Role role_named(std::string_view name) {
  return name == "agent" ? Role::kAgent : name == "rank" ? Role::kRank : Role::kLauncher;
}

std::string file_of(pid_t id, unsigned long long fd) {
  const std::string link = "/proc/" + std::to_string(id) + "/fd/" + std::to_string(fd);
  char what[64];
  const ssize_t size = readlink(link.c_str(), what, sizeof what);
  return {what, size > 0 ? static_cast<std::size_t>(size) : 0};
}

// A descriptor that wakes a thread: the kernel has no error for those.
bool is_doorbell(std::string_view file) {
  return file == "anon_inode:[eventfd]" || file == "anon_inode:[signalfd]";
}

class Tracer {
 public:
  Tracer(Role role, const Name* call, bool of_sockets, long error, long at)
      : role_(role), call_(call), of_sockets_(of_sockets), error_(error), at_(at) {}

  int follow(pid_t first) {
    int code = 77;
    for (;;) {
      int status = 0;
      const pid_t id = waitpid(-1, &status, __WALL);
      if (id < 0) {
        if (errno == EINTR) continue;
        return code;
      }
      if (WIFEXITED(status) || WIFSIGNALED(status)) {
        traced_.erase(id);
        if (id == first) code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        continue;
      }
      on_stop(id, status);
    }
  }

  void write_log(const char* path, int code) const {
    FILE* log = fopen(path, "we");
    if (log == nullptr) give_up(path);
    fprintf(log, "exit %d\n", code);
    if (!struck_.empty()) fprintf(log, "struck %s\n", struck_.c_str());
    for (const auto& [name, count] : seen_) fprintf(log, "seen %s %ld\n", name.c_str(), count);
    fclose(log);
  }

 private:
  void on_stop(pid_t id, int status) {
    auto [found, is_new] = traced_.try_emplace(id);
    Traced& traced = found->second;
    if (is_new) traced.role = role_of(id);
    const int signal = WSTOPSIG(status);
    const int event = status >> 16;
    if (event == PTRACE_EVENT_EXEC) {
      traced = Traced{.role = role_of(id), .inside = true, .failing = false, .loaded = false};
      if (traced.role == Role::kOther && !follows_all_) {
        traced_.erase(found);
        ptrace(PTRACE_DETACH, id, 0, 0);
        return;
      }
    }
    if (signal == (SIGTRAP | 0x80)) on_call(id, traced);
    // The stop that a new process begins with is ptrace's own; others are passed to their
    // receivers.
    const bool of_ptrace =
        event != 0 || signal == (SIGTRAP | 0x80) || (is_new && signal == SIGSTOP);
    const auto deliver = static_cast<uintptr_t>(of_ptrace ? 0 : signal);
    ptrace(traced.role == role_ ? PTRACE_SYSCALL : PTRACE_CONT, id, 0, deliver);
  }

  void on_call(pid_t id, Traced& traced) {
    user_regs_struct registers{};
    if (ptrace(PTRACE_GETREGS, id, 0, &registers) != 0) return;
    traced.inside = !traced.inside;
    if (!traced.inside) {
      if (std::exchange(traced.failing, false)) {
        if (traced.wanted_break) {
          // A call leaves its arguments alone.
          registers.rdi = *std::exchange(traced.wanted_break, std::nullopt);
        } else {
          registers.rax = static_cast<unsigned long long>(-error_);
        }
        ptrace(PTRACE_SETREGS, id, 0, &registers);
      }
      return;
    }
    if (!traced.loaded) {  // the C library's last call before what a program begins with itself
      traced.loaded = registers.orig_rax == SYS_prlimit64;
      return;
    }
    for (const Name& each : kCalls) {
      if (each.number != static_cast<long>(registers.orig_rax)) continue;
      const bool moves_bytes = each.number == SYS_read || each.number == SYS_write;
      const std::string file = moves_bytes ? file_of(id, registers.rdi) : "";
      if (is_doorbell(file)) return;
      ++seen_[each.name];
      if (call_ != nullptr && call_ != &each) return;
      if (of_sockets_ && !file.starts_with("socket:")) return;
      if (++counted_ != at_) return;
      struck_ = each.name;
      traced.failing = true;
      // The kernel answers a break that it refuses with the old one instead of an error, which the
      // C library would take for the new one.
      if (each.number == SYS_brk) {
        traced.wanted_break = std::exchange(registers.rdi, 1);
      } else {
        registers.orig_rax = static_cast<unsigned long long>(-1);
      }
      ptrace(PTRACE_SETREGS, id, 0, &registers);
      return;
    }
  }

  Role role_;
  const bool follows_all_ = getenv("HORA_FOLLOW") != nullptr;
  const Name* call_;
  bool of_sockets_;
  long error_;
  long at_;
  long counted_ = 0;
  std::string struck_;
  std::map<std::string, long> seen_;
  std::map<pid_t, Traced> traced_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 8 || std::string_view(argv[6]) != "--") {
    fprintf(stderr, "usage: fault_tracer launcher|agent|rank CALL|all ERROR N LOG -- COMMAND...\n");
    return 2;
  }
  const Role role = role_named(argv[1]);
  const bool of_sockets = std::string_view(argv[2]) == "socket-read";
  const Name* call = by_name(kCalls, of_sockets ? "read" : argv[2]);
  const Name* error = by_name(kErrors, argv[3]);
  if (error == nullptr || (call == nullptr && std::string_view(argv[2]) != "all")) {
    fprintf(stderr, "fault_tracer: no such call or error: %s %s\n", argv[2], argv[3]);
    return 2;
  }
  const pid_t first = fork();
  if (first < 0) give_up("fork");
  if (first == 0) {
    if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0) give_up("ptrace");
    raise(SIGSTOP);
    execv(argv[7], argv + 7);
    give_up(argv[7]);
  }
  int status = 0;
  if (waitpid(first, &status, 0) != first || !WIFSTOPPED(status))
    give_up("waiting for the program to stop");
  constexpr long kOptions = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                            PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
  if (ptrace(PTRACE_SETOPTIONS, first, 0, kOptions) != 0) give_up("ptrace");
  Tracer tracer(role, call, of_sockets, error->number, atol(argv[4]));
  ptrace(PTRACE_CONT, first, 0, 0);
  const int code = tracer.follow(first);
  tracer.write_log(argv[5], code);
  return code;
}

#else

int main() {
  fprintf(stderr, "fault_tracer: knows the registers of x86-64 only\n");
  return 77;
}

#endif
