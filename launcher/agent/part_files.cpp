// SPDX-License-Identifier: Apache-2.0
// Everything is opened relative to descriptors with O_NOFOLLOW, so no symbolic link can redirect
// it.
#include "launcher/agent/part_files.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "launcher/agent/safe_path.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

namespace {

Error io_error(int errnum, const char* action, const std::string& folder, const std::string& path) {
  return errno_error(errnum, std::string(action) + " " + folder + "/" + path);
}

Status write_all(int fd, const char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t wrote = ::write(fd, bytes, size);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno_error(errno, "writing");
    bytes += wrote;
    size -= static_cast<std::size_t>(wrote);
  }
  return Ok{};
}

Status copy_bytes(int from, int to) {
  if (::ioctl(to, FICLONE, from) == 0) return Ok{};
  std::array<char, 64 * 1024> chunk;
  while (true) {
    const ssize_t got = ::read(from, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(errno, "reading");
    if (got == 0) return Ok{};
    HORA_TRY(write_all(to, chunk.data(), static_cast<std::size_t>(got)));
  }
}

// O_EXCL: nothing that another part has is ever written over.
Status copy_file(int from, int to, const std::string& shown_path, const BundleFile& file) {
  const os::Fd source(::openat(from, file.path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!source.valid()) return errno_error(errno, "opening another bundle's " + file.path);
  os::Fd copy(
      ::openat(to, file.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!copy.valid()) return io_error(errno, "creating", shown_path, file.path);
  if (const Status copied = copy_bytes(source.get(), copy.get()); !copied) {
    return Error(copied.error()).with_context(shown_path + "/" + file.path);
  }
  // Some file systems report a full disk only at close().
  if (::fchmod(copy.get(), permissions_of(file)) != 0 ||
      (::close(copy.release()) != 0 && errno != EINTR)) {
    return io_error(errno, "writing", shown_path, file.path);
  }
  return Ok{};
}

// EPERM, ENOTSUP and the like: a file system without hard links. EXDEV: another one. EMLINK: too
// many.
bool allows_no_link(int errnum) {
  return errnum == EXDEV || errnum == EPERM || errnum == EMLINK || errnum == ENOTSUP ||
         errnum == ENOSYS;
}

enum class Means { kLinkOrCopy, kCopy };

// A link costs one system call and no room, so it is tried first. A symbolic link is made anew, as
// hard links to them are not allowed everywhere.
Status adopt_file(int from, int to, const std::string& shown_path, const BundleFile& file,
                  Means means) {
  if (is_folder(file)) return make_folder(to, shown_path, file);
  if (!file.link_target.empty()) {
    if (::symlinkat(file.link_target.c_str(), to, file.path.c_str()) == 0) return Ok{};
  } else {
    if (means == Means::kCopy) return copy_file(from, to, shown_path, file);
    if (::linkat(from, file.path.c_str(), to, file.path.c_str(), 0) == 0) return Ok{};
    if (allows_no_link(errno)) return copy_file(from, to, shown_path, file);
  }
  return io_error(errno, "creating", shown_path, file.path);
}

Status put_files(int from, int to, const std::string& shown_path,
                 const std::vector<BundleFile>& files, Means means) {
  HORA_TRY(check_paths(files));
  std::string last_parent;
  // Links come last, so that no file is written through one of them.
  for (const bool links : {false, true}) {
    for (const BundleFile& file : files) {
      if (file.link_target.empty() == links) continue;
      HORA_TRY(make_parents(to, shown_path, file.path, last_parent));
      HORA_TRY(adopt_file(from, to, shown_path, file, means));
    }
  }
  return Ok{};
}

}  // namespace

Status check_paths(const std::vector<BundleFile>& files) {
  for (const BundleFile& file : files) {
    HORA_TRY(check_relative_path(file.path));
    if (!file.link_target.empty()) HORA_TRY(check_link_target(file.path, file.link_target));
  }
  return Ok{};
}

Status make_parents(int directory, const std::string& shown_path, const std::string& path,
                    std::string& last_parent) {
  const std::size_t last = path.rfind('/');
  const std::string parent = last == std::string::npos ? "" : path.substr(0, last);
  if (parent == last_parent) return Ok{};
  for (std::size_t slash = path.find('/'); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    if (::mkdirat(directory, part.c_str(), 0755) != 0 && errno != EEXIST) {
      return io_error(errno, "creating", shown_path, part);
    }
  }
  last_parent = parent;
  return Ok{};
}

mode_t permissions_of(const BundleFile& file) {
  constexpr int kPermissions = 0777;
  return static_cast<mode_t>(file.mode & kPermissions);
}

bool is_folder(const BundleFile& file) {
  return (static_cast<mode_t>(file.mode) & S_IFMT) == S_IFDIR;
}

Status make_folder(int directory, const std::string& shown_path, const BundleFile& file) {
  if (::mkdirat(directory, file.path.c_str(), 0755) == 0 || errno == EEXIST) return Ok{};
  return io_error(errno, "creating", shown_path, file.path);
}

bool are_whole(int directory, const std::vector<BundleFile>& files) {
  return std::all_of(files.begin(), files.end(), [directory](const BundleFile& file) {
    struct stat info {};
    if (::fstatat(directory, file.path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return false;
    if (!file.link_target.empty()) return S_ISLNK(info.st_mode);
    if (is_folder(file)) return S_ISDIR(info.st_mode);
    return S_ISREG(info.st_mode) && static_cast<std::uint64_t>(info.st_size) == file.size_bytes;
  });
}

Status adopt_files(int from, int to, const std::string& shown_path,
                   const std::vector<BundleFile>& files) {
  return put_files(from, to, shown_path, files, Means::kLinkOrCopy);
}

Status copy_files(int from, int to, const std::string& shown_path,
                  const std::vector<BundleFile>& files) {
  return put_files(from, to, shown_path, files, Means::kCopy);
}

}  // namespace hora::launcher
