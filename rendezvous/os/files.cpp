// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/os/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <memory>
#include <utility>

#include "rendezvous/os/fd.h"
#include "rendezvous/os/random.h"

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
// file. The older call knows the real user only, usually the same one.
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

Result<std::vector<std::string>> list_folder(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
  if (!folder) return errno_error(errno, "reading the folder " + path);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* item = ::readdir(folder.get());
    if (item == nullptr && errno != 0) return errno_error(errno, "reading the folder " + path);
    if (item == nullptr) break;
    const std::string_view name = item->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> names_in(const std::string& folder) {
  auto names = list_folder(folder);
  return names ? std::move(*names) : std::vector<std::string>();
}

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

// Readers see the old file or the whole new one: the content goes to a file next to it, which is
// renamed. Devices and pipes (/dev/stdout, a FIFO) cannot be replaced and are written directly.

namespace {

bool is_device(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

std::string behind_links(const std::string& path) {
  char* found = ::realpath(path.c_str(), nullptr);
  std::string real = found != nullptr ? found : path;
  ::free(found);
  return real;
}

}  // namespace

bool is_standard_output(const std::string& path) {
  struct stat named {};
  struct stat ours {};
  return path == "-" || (::stat(path.c_str(), &named) == 0 && ::fstat(STDOUT_FILENO, &ours) == 0 &&
                         named.st_dev == ours.st_dev && named.st_ino == ours.st_ino);
}

Status check_writable(const std::string& path) {
  if (is_device(path)) {
    return ::access(path.c_str(), W_OK) == 0 ? Status(Ok{}) : errno_error(errno, path);
  }
  const std::string real = behind_links(path);
  struct stat info {};
  if (::stat(real.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return errno_error(EISDIR, path);
  const std::size_t slash = real.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : real.substr(0, slash + 1);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    return errno_error(errno, path + ": the folder cannot be written");
  }
  return Ok{};
}

Result<AtomicFile> AtomicFile::make(const std::string& path, mode_t mode,
                                    std::optional<std::chrono::milliseconds> timeout) {
  AtomicFile made;
  made.name_ = path;
  made.timeout_ = timeout;
  if (is_device(path)) {
    const int flags = O_WRONLY | O_CLOEXEC | O_NOCTTY | (timeout ? O_NONBLOCK : 0);
    made.file_ = Fd(::open(path.c_str(), flags));
    if (!made.file_.valid()) return errno_error(errno, "opening " + path);
    return made;
  }
  // A link that the user made stays one: its target is replaced.
  made.path_ = behind_links(path);
  const std::string temporary = made.path_ + "." + random_token().substr(0, 16);
  made.file_ =
      Fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!made.file_.valid()) return errno_error(errno, "making " + made.path_);
  made.temporary_ = temporary;
  return made;
}

Result<AtomicFile> AtomicFile::standard_output() {
  AtomicFile made;
  made.name_ = "standard output";
  made.file_ = Fd(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
  if (!made.file_.valid()) return errno_error(errno, "writing to standard output");
  return made;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : name_(std::move(other.name_)),
      path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      timeout_(other.timeout_),
      file_(std::move(other.file_)) {}

AtomicFile::~AtomicFile() {
  // Not finished: a partial file must not remain.
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status AtomicFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(file_.get(), bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EAGAIN) {
      HORA_TRY(wait_for_reader());
      continue;
    }
    if (wrote < 0) return errno_error(errno, "writing " + name_);
    bytes.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return Ok{};
}

// A reader that has stopped reading must not keep this program from ending.
Status AtomicFile::wait_for_reader() const {
  pollfd reader{file_.get(), POLLOUT, 0};
  const int ready = ::poll(&reader, 1, timeout_ ? static_cast<int>(timeout_->count()) : -1);
  if (ready > 0 || (ready < 0 && errno == EINTR)) return Ok{};
  return make_error(ErrorCode::kTimedOut, "writing " + name_ + ": it was not read for " +
                                              std::to_string(timeout_->count() / 1000) + " s");
}

Status AtomicFile::finish() {
  // A disk, a quota or a file server may report a failed write as late as this, and an incomplete
  // file must not get the name. Pipes and some file systems do not support fsync().
  while (!temporary_.empty() && ::fsync(file_.get()) != 0 && errno != EINVAL && errno != EROFS) {
    if (errno != EINTR) return errno_error(errno, "writing " + name_);
  }
  if (const int refused = file_.close(); refused != 0) {
    return errno_error(refused, "writing " + name_);
  }
  if (temporary_.empty()) return Ok{};
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    return errno_error(errno, "naming " + path_);
  temporary_.clear();
  return Ok{};
}

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

MappedPart::MappedPart(int fd, off_t offset, std::size_t bytes, std::size_t page) {
  const auto ahead = static_cast<std::size_t>(offset) % page;
  void* const mapped = ::mmap(nullptr, ahead + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                              offset - static_cast<off_t>(ahead));
  if (mapped == MAP_FAILED) return;
  mapped_ = mapped;
  mapped_bytes_ = ahead + bytes;
  data_ = static_cast<char*>(mapped) + ahead;
}

MappedPart::~MappedPart() {
  if (mapped_ != nullptr) ::munmap(mapped_, mapped_bytes_);
}

}  // namespace hora::os
