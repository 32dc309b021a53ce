// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/os/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "rendezvous/os/fd.h"

namespace hora::os {

// The size from fstat() only saves reallocations; the end of the file decides.
Result<std::string> read_to_end(int fd, const std::string& name, std::size_t limit) {
  std::string text;
  struct stat info {};
  if (::fstat(fd, &info) != 0) return errno_error(errno, "reading " + name);
  // Files of /proc report a size of 0; the loop below finds one that is larger than allowed.
  if (S_ISREG(info.st_mode) && static_cast<std::size_t>(info.st_size) <= limit) {
    text.reserve(static_cast<std::size_t>(info.st_size));
  }
  std::array<char, 8 * 1024> chunk;  // a stack may have only 64 KiB (ulimit -s)
  while (true) {
    const ssize_t got = ::read(fd, chunk.data(), chunk.size());
    // A signal, not an error.
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(errno, "reading " + name);
    if (got == 0) return text;
    // Compared by subtraction, since the sum could overflow.
    if (static_cast<std::size_t>(got) > limit - text.size()) {
      return make_error(ErrorCode::kFailed,
                        name + " is larger than " + std::to_string(limit) + " bytes");
    }
    text.append(chunk.data(), static_cast<std::size_t>(got));
  }
}

Result<std::string> read_file(const std::string& path) {
  // A regular open: callers read settings and /proc, where nothing blocks.
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return errno_error(errno, "opening " + path);
  return read_to_end(file.get(), path);
}

Result<std::string> read_line(int fd, const std::string& name, std::size_t limit) {
  std::string line;
  // More than one byte at a time might take what another reader of the same input is to get.
  for (char c = 0;;) {
    const ssize_t got = ::read(fd, &c, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(errno, "reading " + name);
    if (got == 0 || c == '\n') return line;
    if (line.size() == limit) {
      return make_error(ErrorCode::kUsage, name + ": its first line is longer than " +
                                               std::to_string(limit) + " bytes");
    }
    line.push_back(c);
  }
}

Status check_secret_file(int fd, const std::string& name) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return errno_error(errno, "reading " + name);
  if (S_ISDIR(info.st_mode)) return make_error(ErrorCode::kUsage, name + ": it is a directory");
  if (!S_ISREG(info.st_mode)) return Ok{};
  if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    return make_error(ErrorCode::kUsage,
                      name + " belongs to user " + std::to_string(info.st_uid) +
                          ", who knows the secret and can change it; use a file of your own");
  }
  // A file of root's may be meant for a group, as Kubernetes has it for its secrets.
  const mode_t refused = info.st_uid == ::geteuid() ? 077 : 027;
  if ((info.st_mode & refused) != 0) {
    return make_error(ErrorCode::kUsage,
                      name + " is a secret that others can read or write; chmod 600 it");
  }
  return Ok{};
}

}  // namespace hora::os
