#include "launcher/process/program_search.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "rendezvous/os/fd.h"

namespace hora::launcher {

namespace {

// 0 when it may be executed, else an errno.
int check_executable(const std::string& path, int directory_fd) {
  struct stat info {};
  if (::fstatat(directory_fd, path.c_str(), &info, 0) != 0) return errno;
  if (S_ISDIR(info.st_mode)) return EISDIR;
  if (!S_ISREG(info.st_mode)) return EACCES;
  if (::faccessat(directory_fd, path.c_str(), X_OK, AT_EACCESS) != 0) return errno;
  return 0;
}

Error describe(int errnum, std::string_view name) {
  std::string what = "executing ";
  what.append(name);
  if (errnum == ENOENT || errnum == ENOTDIR) {
    return make_error(ErrorCode::kNotFound, what + ": " + std::strerror(errnum));
  }
  return make_error(ErrorCode::kDenied, what + ": " + std::strerror(errnum));
}

}  // namespace

Result<std::string> find_program(std::string_view name, std::string_view path_variable,
                                 int directory_fd) {
  if (name.empty()) return make_error(ErrorCode::kNotFound, "executing: the command is empty");
  if (name.find('/') != std::string_view::npos) {
    std::string path(name);
    const int errnum = check_executable(path, directory_fd);
    if (errnum != 0) return describe(errnum, name);
    return path;
  }
  int denied = 0;  // a later directory may hold a better one
  while (true) {
    const std::size_t colon = path_variable.find(':');
    const std::string_view directory = path_variable.substr(0, colon);
    std::string candidate(directory.empty() ? "." : directory);
    candidate.append("/").append(name);
    const int errnum = check_executable(candidate, directory_fd);
    if (errnum == 0) return candidate;
    if (errnum == EACCES && denied == 0) denied = errnum;
    if (colon == std::string_view::npos) break;
    path_variable.remove_prefix(colon + 1);
  }
  if (denied != 0) return describe(denied, name);
  return make_error(ErrorCode::kNotFound, "executing " + std::string(name) + ": not found in PATH");
}

bool is_plain_script(const std::string& path, int directory_fd) {
  os::Fd file(::openat(directory_fd, path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return false;
  std::array<char, 256> head;
  const ssize_t got = ::read(file.get(), head.data(), head.size());
  if (got < 0) return false;
  const std::string_view bytes(head.data(), static_cast<std::size_t>(got));
  // A binary of another machine has a NUL soon; text does not.
  return bytes.substr(0, 2) != "#!" && bytes.find('\0') == std::string_view::npos;
}

}  // namespace hora::launcher
