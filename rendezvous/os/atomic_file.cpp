// SPDX-License-Identifier: Apache-2.0
// Readers see the old file or the whole new one: the content goes to a file beside it, which takes
// the name in one rename. Devices and pipes (/dev/stdout, a FIFO) have no name to take and are
// written directly.
#include "rendezvous/os/atomic_file.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "rendezvous/os/random.h"

namespace hora::os {

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
                                    std::optional<std::chrono::milliseconds> patience) {
  AtomicFile made;
  made.name_ = path;
  made.patience_ = patience;
  if (is_device(path)) {
    const int flags = O_WRONLY | O_CLOEXEC | O_NOCTTY | (patience ? O_NONBLOCK : 0);
    made.file_ = Fd(::open(path.c_str(), flags));
    if (!made.file_.valid()) return errno_error(errno, "opening " + path);
    return made;
  }
  // A link that the user made stays one: its target is replaced.
  made.path_ = behind_links(path);
  const std::string beside = made.path_ + "." + random_token().substr(0, 16);
  made.file_ =
      Fd(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!made.file_.valid()) return errno_error(errno, "making " + made.path_);
  made.beside_ = beside;
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
      beside_(std::exchange(other.beside_, {})),
      patience_(other.patience_),
      file_(std::move(other.file_)) {}

AtomicFile::~AtomicFile() {
  // Not finished: nobody must find a file that is cut off.
  if (!beside_.empty()) ::unlink(beside_.c_str());
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
  const int ready = ::poll(&reader, 1, patience_ ? static_cast<int>(patience_->count()) : -1);
  if (ready > 0 || (ready < 0 && errno == EINTR)) return Ok{};
  return make_error(ErrorCode::kTimedOut, "writing " + name_ + ": nobody has read from it for " +
                                              std::to_string(patience_->count() / 1000) + " s");
}

Status AtomicFile::finish() {
  // A disk, a quota or a file server may report a failed write as late as this, and an incomplete
  // file must not get the name. Pipes and some file systems do not support fsync().
  while (!beside_.empty() && ::fsync(file_.get()) != 0 && errno != EINVAL && errno != EROFS) {
    if (errno != EINTR) return errno_error(errno, "writing " + name_);
  }
  if (const int refused = file_.close(); refused != 0) {
    return errno_error(refused, "writing " + name_);
  }
  if (beside_.empty()) return Ok{};
  if (::rename(beside_.c_str(), path_.c_str()) != 0) return errno_error(errno, "naming " + path_);
  beside_.clear();
  return Ok{};
}

}  // namespace hora::os
