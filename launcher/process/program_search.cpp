// Searches PATH as execvp() does, but before the fork and relative to a given directory, so that
// the error can say what was missing.
#include "launcher/process/program_search.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "rendezvous/os/fd.h"

namespace hora::launcher {

namespace {

// Returns 0 if the file may be executed, else an errno.
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

// The number of bytes that the kernel reads to recognise a file (BINPRM_BUF_SIZE).
constexpr std::size_t kKernelReads = 256;

std::optional<std::string> beginning_of(const std::string& path, int directory_fd) {
  os::Fd file(::openat(directory_fd, path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return std::nullopt;
  std::string head(kKernelReads, '\0');
  const ssize_t got = ::read(file.get(), head.data(), head.size());
  if (got < 0) return std::nullopt;
  head.resize(static_cast<std::size_t>(got));
  return head;
}

}  // namespace

Result<std::string> find_program(std::string_view name, std::string_view path_variable,
                                 int directory_fd) {
  if (name.empty()) return make_error(ErrorCode::kNotFound, "executing: the command is empty");
  // A name with a slash is a path; PATH does not apply.
  if (name.find('/') != std::string_view::npos) {
    std::string path(name);
    const int errnum = check_executable(path, directory_fd);
    if (errnum != 0) return describe(errnum, name);
    return path;
  }
  // A later directory may hold one that can be executed.
  int denied = 0;
  while (true) {
    const std::size_t colon = path_variable.find(':');
    const std::string_view directory = path_variable.substr(0, colon);
    // An empty entry in PATH means the working directory.
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
  const auto head = beginning_of(path, directory_fd);
  // A binary for another machine contains a NUL byte early; text does not.
  return head && head->rfind("#!", 0) != 0 && head->find('\0') == std::string::npos;
}

std::optional<std::string> named_interpreter(const std::string& path, int directory_fd) {
  const auto head = beginning_of(path, directory_fd);
  if (!head || head->rfind("#!", 0) != 0) return std::nullopt;
  const std::size_t begin = head->find_first_not_of(" \t", 2);
  if (begin == std::string::npos) return "";
  const std::size_t end = head->find_first_of(std::string_view(" \t\n\0", 4), begin);
  // The name may be cut off if it has no end within these bytes, unless the file itself ends.
  if (end == std::string::npos && head->size() >= kKernelReads) return "";
  return head->substr(begin, end == std::string::npos ? end : end - begin);
}

}  // namespace hora::launcher
