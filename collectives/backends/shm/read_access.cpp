// SPDX-License-Identifier: Apache-2.0
#include "collectives/backends/shm/read_access.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "rendezvous/os/read_file.h"

namespace hora::collectives::shm {

namespace {

// A namespace is identified by the inode number of its file in /proc.
std::uint64_t inode_of(const std::string& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0 ? found.st_ino : 0;
}

// 0 stands for "unknown", which proves nothing.
bool differ(std::uint64_t a, std::uint64_t b) { return a != 0 && b != 0 && a != b; }

// What /proc shows of another process; it does not show whether it is dumpable.
Standing standing_of(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  Standing standing;
  struct stat found {};
  if (::stat(folder.c_str(), &found) == 0) standing.user = found.st_uid;
  standing.user_namespace = inode_of(folder + "/ns/user");
  standing.pid_namespace = inode_of(folder + "/ns/pid");
  return standing;
}

// Returns 0 or errno. The kernel checks the permission before it looks at the address, so any
// address serves for the question.
int error_reading(pid_t pid, const void* address) {
  char byte = 0;
  const iovec local{&byte, 1};
  const iovec remote{const_cast<void*>(address), 1};
  return ::process_vm_readv(pid, &local, 1, &remote, 1, 0) == 1 ? 0 : errno;
}

}  // namespace

Standing own_standing() {
  Standing standing;
  standing.user = ::geteuid();
  standing.user_namespace = inode_of("/proc/self/ns/user");
  standing.pid_namespace = inode_of("/proc/self/ns/pid");
  // A process that changed its user or has capabilities is not dumpable, so others may not read it.
  standing.dumpable = ::prctl(PR_GET_DUMPABLE);
  return standing;
}

std::string explain(const RefusedRead& refused) {
  const Standing& reader = refused.reader;
  const Standing& target = refused.target;
  // From the most general obstacle to the most specific: what stops a process from reading itself
  // stops it from reading others, and so on.
  if (refused.error_at_self == ENOSYS) {
    return "process_vm_readv is missing: the kernel was built without CONFIG_CROSS_MEMORY_ATTACH, "
           "or "
           "a seccomp filter hides it";
  }
  if (refused.error_at_self != 0) {
    return std::string("a seccomp filter forbids process_vm_readv (") +
           std::strerror(refused.error_at_self) +
           "); containers: --cap-add SYS_PTRACE, or a profile that allows it";
  }
  if (differ(reader.pid_namespace, target.pid_namespace)) {
    return "the other process is in another PID namespace; containers: one for all ranks of a host";
  }
  if (refused.error == 0 || refused.error == ESRCH || refused.error == EFAULT) {
    return "the process of that number is another one here";
  }
  // From here on the kernel refused: its reasons, in the order in which it checks them.
  if (refused.error != EPERM) return std::strerror(refused.error);
  if (differ(reader.user_namespace, target.user_namespace)) {
    return "the other process is in another user namespace; containers: one for all ranks of a "
           "host";
  }
  if (reader.user != target.user) {
    return "the other process is of user " + std::to_string(target.user) + ", this one of user " +
           std::to_string(reader.user);
  }
  if (refused.ptrace_scope > 0) {
    return "kernel.yama.ptrace_scope is " + std::to_string(refused.ptrace_scope) +
           "; sysctl kernel.yama.ptrace_scope=0, or the capability SYS_PTRACE, would allow it";
  }
  if (target.dumpable != 1) {
    return "the other process is not dumpable (prctl PR_SET_DUMPABLE, or a program with "
           "capabilities)";
  }
  return "a security module forbids it, or the other process has capabilities that this one lacks";
}

int error_reading_self() {
  const char byte = 0;
  return error_reading(::getpid(), &byte);
}

int ptrace_scope() {
  // The file exists only where the kernel has Yama.
  const auto text = os::read_file("/proc/sys/kernel/yama/ptrace_scope");
  return text && !text->empty() ? std::atoi(text->c_str()) : -1;
}

std::string obstacle_here() {
  RefusedRead refused;
  refused.error_at_self = error_reading_self();
  refused.ptrace_scope = ptrace_scope();
  refused.reader = own_standing();
  if (refused.error_at_self != 0) return explain(refused);
  // A child's access to its parent follows the same rules as one rank's to another, unless the
  // parent belongs to another user.
  const pid_t parent = ::getppid();
  refused.target = standing_of(parent);
  if (parent <= 1 || refused.target.user != refused.reader.user) return {};
  refused.error = error_reading(parent, nullptr);
  return refused.error == EPERM ? explain(refused) : std::string();
}

}  // namespace hora::collectives::shm
