// SPDX-License-Identifier: Apache-2.0
// Removes a tree relative to open directories and never follows a symbolic link, so nothing outside
// the tree can be removed even if the tree changes meanwhile.
#include "launcher/agent/remove_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "rendezvous/os/fd.h"

namespace hora::launcher {

namespace {

// Returns 0, or the errno of the first failure; continues after a failure.
int remove_entry(int parent, const char* name);

int remove_contents(os::Fd directory) {
  const int fd = directory.get();
  // closedir() closes the descriptor.
  DIR* stream = ::fdopendir(directory.release());
  if (stream == nullptr) return errno;
  int first = 0;
  while (const dirent* item = ::readdir(stream)) {
    const std::string_view name(item->d_name);
    if (name == "." || name == "..") continue;
    const int errnum = remove_entry(fd, item->d_name);
    if (first == 0) first = errnum;
  }
  ::closedir(stream);
  return first;
}

int remove_entry(int parent, const char* name) {
  if (::unlinkat(parent, name, 0) == 0 || errno == ENOENT) return 0;
  // Linux reports EISDIR for a directory; POSIX allows EPERM.
  if (errno != EISDIR && errno != EPERM) return errno;
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  os::Fd directory(::openat(parent, name, kFlags));
  // The user's program may have removed its own permissions.
  if (!directory.valid() && errno == EACCES && ::fchmodat(parent, name, 0700, 0) == 0) {
    directory = os::Fd(::openat(parent, name, kFlags));
  }
  if (!directory.valid()) return errno;
  ::fchmod(directory.get(), 0700);
  const int errnum = remove_contents(std::move(directory));
  if (::unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT) return 0;
  // The first failure inside explains why the directory is not empty.
  return errnum != 0 ? errnum : errno;
}

}  // namespace

Status remove_tree(const std::string& path) {
  const int errnum = remove_entry(AT_FDCWD, path.c_str());
  if (errnum != 0) return errno_error(errnum, "removing " + path);
  return Ok{};
}

}  // namespace hora::launcher
