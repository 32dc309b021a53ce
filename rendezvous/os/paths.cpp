// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/os/paths.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <memory>

namespace hora::os {

std::string folder_of(std::string_view path) {
  return std::string(path.substr(0, path.rfind('/')));
}

// Without a buffer of the caller's, realpath() has no limit of length.
std::string real_path(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> real(::realpath(path.c_str(), nullptr), std::free);
  return real ? real.get() : path;
}

// The C library asks faccessat2(), which some sandboxes answer with EPERM, as if it was about the
// file. The older call knows the real user only, who is the same as a rule.
int check_executable(int directory_fd, const char* path) {
  if (::faccessat(directory_fd, path, X_OK, AT_EACCESS) == 0) return 0;
  if (errno != EPERM) return errno;
  return ::syscall(SYS_faccessat, directory_fd, path, X_OK) == 0 ? 0 : errno;
}

// Not by realpath(): a program that was replaced since it was started is not at its path any more.
Result<std::string> program_folder() {
  constexpr const char* kProgram = "/proc/self/exe";
  std::array<char, PATH_MAX> path;
  const ssize_t length = ::readlink(kProgram, path.data(), path.size());
  if (length > 0) return folder_of({path.data(), static_cast<std::size_t>(length)});
  return errno_error(errno, std::string("reading ") + kProgram + " (is /proc mounted here?)");
}

bool is_folder(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace hora::os
