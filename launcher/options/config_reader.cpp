// SPDX-License-Identifier: Apache-2.0
// A file that the user names is read as it is. A file that is found by itself (in the current
// directory, say) can set commands to run, so it must belong to the user or root and must not be
// writable for all.
#include "launcher/options/config_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "rendezvous/os/fd.h"
#include "rendezvous/os/files.h"

namespace hora::launcher {

namespace {

// The limit makes reading a file without an end (/dev/zero) stop, too.
constexpr std::size_t kLargestFile = 16u << 20;

}  // namespace

Result<std::string> read_text_file(const std::string& path) {
  os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return errno_error(errno, "opening " + path);
  return os::read_to_end(file.get(), path, kLargestFile);
}

Result<std::string> read_own_text_file(const std::string& path) {
  // Opening a FIFO would wait for a writer; O_NONBLOCK prevents that.
  os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) {
    // A directory that is closed to us holds nothing of ours.
    return errno_error(errno == EACCES || errno == ENOTDIR ? ENOENT : errno, "opening " + path);
  }
  // Checks the open file, so that it cannot be exchanged after the check.
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return errno_error(errno, "reading " + path);
  if (!S_ISREG(info.st_mode)) {
    return make_error(ErrorCode::kUsage, path + ": expected a file; --no-config leaves it out");
  }
  if (info.st_uid != ::getuid() && info.st_uid != 0) {
    return make_error(ErrorCode::kUsage,
                      path + " belongs to user " + std::to_string(info.st_uid) +
                          " and is not used; name it with --config-file, or use --no-config");
  }
  if ((info.st_mode & S_IWOTH) != 0) {
    return make_error(ErrorCode::kUsage, path +
                                             " can be written by all users and is not used; "
                                             "chmod o-w it, or use --no-config");
  }
  return os::read_to_end(file.get(), path, kLargestFile);
}

}  // namespace hora::launcher
