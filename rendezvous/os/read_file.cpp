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

}  // namespace hora::os
