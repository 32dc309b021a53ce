// SPDX-License-Identifier: Apache-2.0
// Searches PATH as execvp() does, but before the fork and relative to a given directory, so that
// the error can say what was missing.
#include "launcher/process/program_search.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "rendezvous/os/fd.h"
#include "rendezvous/os/files.h"

namespace hora::launcher {

namespace {

// Returns 0 if the file may be executed, else an errno.
int check_executable(const std::string& path, int directory_fd) {
  struct stat info {};
  if (::fstatat(directory_fd, path.c_str(), &info, 0) != 0) return errno;
  if (S_ISDIR(info.st_mode)) return EISDIR;
  if (!S_ISREG(info.st_mode)) return EACCES;
  return os::check_executable(directory_fd, path.c_str());
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

bool is_missing(int errnum) { return errnum == 0 || errnum == ENOENT || errnum == ENOTDIR; }

ProgramSearch search_program(std::string_view name, std::string_view path_variable,
                             int directory_fd) {
  if (name.empty()) return {"", ENOENT};
  // A name with a slash is a path; PATH does not apply.
  if (name.find('/') != std::string_view::npos) {
    std::string path(name);
    const int errnum = check_executable(path, directory_fd);
    return errnum == 0 ? ProgramSearch{std::move(path), 0} : ProgramSearch{"", errnum};
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
    if (errnum == 0) return {std::move(candidate), 0};
    if (errnum == EACCES && denied == 0) denied = errnum;
    if (colon == std::string_view::npos) break;
    path_variable.remove_prefix(colon + 1);
  }
  return {"", denied};
}

Result<std::string> find_program(std::string_view name, std::string_view path_variable,
                                 int directory_fd) {
  ProgramSearch found = search_program(name, path_variable, directory_fd);
  if (!found.path.empty()) return std::move(found.path);
  return make_error(is_missing(found.errnum) ? ErrorCode::kNotFound : ErrorCode::kDenied,
                    "executing " + std::string(name) + ": " +
                        (found.errnum == 0 ? "not found in PATH" : std::strerror(found.errnum)));
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

std::string carriage_return_note(const std::vector<std::string>& command) {
  const char* const path = ::getenv("PATH");
  for (std::size_t i = 0; i < command.size(); ++i) {
    // `sh SCRIPT` and `env SCRIPT` name theirs after the program.
    std::string file = command[i];
    if (i == 0) file = search_program(file, path != nullptr ? path : "", AT_FDCWD).path;
    const auto head = file.empty() ? std::nullopt : beginning_of(file, AT_FDCWD);
    // Text alone: a binary may hold any bytes.
    if (!head || head->find('\0') != std::string::npos || head->find("\r\n") == std::string::npos) {
      continue;
    }
    return "; the lines of " + file +
           " end in a carriage return, as those of Windows files: sed -i " + "'s/\\r$//' " + file;
  }
  return {};
}

}  // namespace hora::launcher
