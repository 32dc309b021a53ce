// SPDX-License-Identifier: Apache-2.0
// A part of a file in memory, shared with the other processes that map it. It may begin at any
// offset: mmap() takes only whole pages, which have 4 KiB on x86-64 and up to 64 KiB on ARM64, so
// files that processes share cannot be laid out by them.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <utility>

namespace hora::os {

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
