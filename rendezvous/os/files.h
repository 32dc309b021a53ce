// SPDX-License-Identifier: Apache-2.0
// Reading and writing files.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/os/fd.h"

namespace hora::os {

// Small questions about paths.

// The part before the last '/'; the path itself where there is none.
std::string folder_of(std::string_view path);

// Without links, "." and ".."; the path itself if it leads to nothing.
std::string real_path(const std::string& path);

// Follows links.
bool is_folder(const std::string& path);

// The names in a folder, sorted, without "." and "..".
Result<std::vector<std::string>> list_folder(const std::string& path);
// The same, and none where it cannot be read.
std::vector<std::string> names_in(const std::string& folder);

// 0 where the effective user may execute a file or enter a folder, else an errno.
int check_executable(int directory_fd, const char* path);

// The running program's, without links.
Result<std::string> program_folder();

// Reads whole files: settings, manifests, /proc.

// Reads the rest of `fd`, which errors call `name`. More than `limit` bytes are an error.
Result<std::string> read_to_end(int fd, const std::string& name,
                                std::size_t limit = std::numeric_limits<std::size_t>::max());

Result<std::string> read_file(const std::string& path);

// The first line of a file, byte by byte: what follows stays unread. More than `limit` bytes
// without an end are an error.
Result<std::string> read_line(int fd, const std::string& name, std::size_t limit);

// Errors (kUsage): a secret in a file that others can read or write, or that belongs to neither
// this user nor root. Other than regular files, such as a pipe, pass.
Status check_secret_file(int fd, const std::string& name);

// A file that exists completely or not at all: it is written under another name and then renamed.
// Its folder may be world-writable, as /tmp is: files of other users there are neither followed nor
// written to. A link stays a link. A device or a pipe is written to as it is: replacing it by a
// file would remove it for all users.

// Whether a file of that name could be written: asked before the work begins.
Status check_writable(const std::string& path);

// Whether it is this process's standard output: "-", /dev/stdout, or the same file or device by any
// other name.
bool is_standard_output(const std::string& path);

class AtomicFile {
 public:
  // `timeout`: with a pipe without a reader; for ever without.
  static Result<AtomicFile> make(const std::string& path, mode_t mode,
                                 std::optional<std::chrono::milliseconds> timeout = {});
  // As it stands, without a name to take.
  static Result<AtomicFile> standard_output();
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();  // what did not get its name is removed

  Status write(std::string_view bytes);
  Status finish();  // nothing is written after it
  // What its maker may remove: the file behind links. Empty: a device or a pipe.
  const std::string& path() const { return path_; }

 private:
  AtomicFile() = default;
  Status wait_for_reader() const;

  std::string name_;       // the user's
  std::string path_;       // through links
  std::string temporary_;  // empty: it has its name, or is a device
  std::optional<std::chrono::milliseconds> timeout_;
  Fd file_;
};

// Folders and files that belong to this user alone: what is remembered from launch to launch.

// The folder, if it belongs to us alone: not a link, and no other user may write or read there.
// `make`: with its parent, where it is missing. Invalid where it is not ours.
Fd open_own_folder(const std::string& folder, bool make);

// A regular file of such a folder that no other user may write; at most `limit` bytes.
Result<std::string> read_own_file(const std::string& folder, const std::string& name,
                                  std::size_t limit);

// A part of a file in memory, shared with the other processes that map it. It may begin at any
// offset: mmap() takes only whole pages, which have 4 KiB on x86-64 and up to 64 KiB on ARM64, so
// files that processes share cannot be laid out by them.

class MappedPart {
 public:
  MappedPart() = default;
  // For reading and writing. Not valid() on failure: errno says why. `page` is the size of the
  // system's pages, or a multiple of it.
  MappedPart(int fd, off_t offset, std::size_t bytes,
             std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
  MappedPart(MappedPart&& other) noexcept { swap(other); }
  MappedPart& operator=(MappedPart&& other) noexcept {
    swap(other);
    return *this;
  }
  ~MappedPart();

  bool valid() const { return data_ != nullptr; }
  void* data() const { return data_; }
  // Leaves the memory mapped for the rest of the process.
  void keep() { mapped_ = nullptr; }

 private:
  void swap(MappedPart& other) noexcept {
    std::swap(mapped_, other.mapped_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
    std::swap(data_, other.data_);
  }

  void* mapped_ = nullptr;  // from the beginning of a page
  std::size_t mapped_bytes_ = 0;
  void* data_ = nullptr;
};

}  // namespace hora::os
