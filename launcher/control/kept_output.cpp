// SPDX-License-Identifier: Apache-2.0
// The file only grows, so a reader's place in it stays valid; its beginning becomes a hole, which
// takes no space. A reader recognizes by the size what may be a hole by now.
#include "launcher/control/kept_output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "launcher/control/control_folder.h"
#include "rendezvous/os/files.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kSuffix = ".out";
constexpr std::size_t kPiece = 256 * 1024;

}  // namespace

std::string kept_output_name(int job) { return std::to_string(job) + std::string(kSuffix); }

int job_of_kept_output(const std::string& name) {
  if (!name.ends_with(kSuffix)) return 0;
  return job_of_name(name.substr(0, name.size() - kSuffix.size()));
}

Result<OutputFile> OutputFile::make(const std::vector<std::string>& folders) {
  const std::string name = kept_output_name(::getpid());
  Error why = make_error(ErrorCode::kFailed, "there is no folder for the output");
  for (const std::string& folder : folders) {
    OutputFile output;
    output.folder_ = folder;
    output.directory_ = os::open_own_folder(folder, /*make=*/true);
    if (!output.directory_.valid()) {
      why = make_error(ErrorCode::kFailed, folder + " is not a folder of this user alone");
      continue;
    }
    // A killed launcher that had our number has left it.
    (void)::unlinkat(output.directory_.get(), name.c_str(), 0);
    output.file_ = os::Fd(::openat(output.directory_.get(), name.c_str(),
                                   O_CREAT | O_EXCL | O_RDWR | O_APPEND | O_CLOEXEC, 0600));
    output.name_ = name;
    if (output.file_.valid()) return output;
    why = errno_error(errno, "making " + folder + "/" + name);
  }
  return why;
}

OutputFile::~OutputFile() {
  if (!file_.valid()) return;
  (void)::unlinkat(directory_.get(), name_.c_str(), 0);
  (void)::rmdir(folder_.c_str());
}

Status OutputFile::take_over() {
  const std::string own = kept_output_name(::getpid());
  if (::renameat(directory_.get(), name_.c_str(), directory_.get(), own.c_str()) != 0) {
    return errno_error(errno, "naming the file of the output");
  }
  name_ = own;
  return Ok{};
}

Status OutputFile::take_streams() {
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    if (::dup2(file_.get(), stream) < 0) return errno_error(errno, "keeping the output");
  }
  return Ok{};
}

// A job is detached where the session cannot take its folder away: in the last one.
bool is_kept_output(int fd) {
  struct stat open {};
  struct stat named {};
  if (::fstat(fd, &open) != 0 || !S_ISREG(open.st_mode)) return false;
  const std::string path = control_folders("").back() + "/" + kept_output_name(::getpid());
  return ::lstat(path.c_str(), &named) == 0 && named.st_dev == open.st_dev &&
         named.st_ino == open.st_ino;
}

void trim_kept_output(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return;
  const off_t old = info.st_size - kMostKeptOutput;
  // What follows keeps its place, so readers need not know.
  if (old > 0) (void)::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, old);
}

Result<OutputReader> OutputReader::open(const std::vector<std::string>& folders, int job) {
  for (const std::string& folder : folders) {
    const os::Fd directory = os::open_own_folder(folder, /*make=*/false);
    if (!directory.valid()) continue;
    os::Fd file(::openat(directory.get(), kept_output_name(job).c_str(),
                         O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (file.valid()) return OutputReader(std::move(file));
  }
  return make_error(ErrorCode::kNotFound, "job " + std::to_string(job) +
                                              " keeps no output: it was not started with "
                                              "--detach, or has ended");
}

Result<std::string> OutputReader::read_new() {
  std::string bytes(kPiece, '\0');
  for (;;) {
    const ssize_t got = ::pread(file_.get(), bytes.data(), bytes.size(), position_);
    struct stat info {};
    if (got < 0 || ::fstat(file_.get(), &info) != 0)
      return errno_error(errno, "reading the output");
    // What may have been given back, before this read or while it did, reads as zeros.
    const off_t kept = info.st_size - kMostKeptOutput;
    if (position_ >= kept) {
      bytes.resize(static_cast<std::size_t>(got));
      position_ += got;
      return bytes;
    }
    position_ = kept;
  }
}

bool OutputReader::is_complete() const {
  struct stat info {};
  return ::fstat(file_.get(), &info) != 0 || info.st_nlink == 0;
}

}  // namespace hora::launcher
