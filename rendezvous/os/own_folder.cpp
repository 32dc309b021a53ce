// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/os/own_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "rendezvous/os/read_file.h"

namespace hora::os {

Fd open_own_folder(const std::string& folder, bool make) {
  if (folder.empty()) return {};
  if (make && ::mkdir(folder.c_str(), 0700) != 0 && errno == ENOENT) {
    // ~/.cache itself may be missing.
    (void)::mkdir(folder.substr(0, folder.rfind('/')).c_str(), 0700);
    (void)::mkdir(folder.c_str(), 0700);
  }
  Fd opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!opened.valid() || ::fstat(opened.get(), &info) != 0 || info.st_uid != ::geteuid() ||
      (info.st_mode & 077) != 0) {
    return {};
  }
  return opened;
}

Result<std::string> read_own_file(const std::string& folder, const std::string& name,
                                  std::size_t limit) {
  const Fd directory = open_own_folder(folder, /*make=*/false);
  const Fd file(directory.valid() ? ::openat(directory.get(), name.c_str(),
                                             O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
                                  : -1);
  struct stat info {};
  if (!file.valid() || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      info.st_uid != ::geteuid() || (info.st_mode & 022) != 0) {
    return make_error(ErrorCode::kNotFound, folder + "/" + name + " is not a file of ours alone");
  }
  return read_to_end(file.get(), folder, limit);
}

}  // namespace hora::os
