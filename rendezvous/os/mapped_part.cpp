// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/os/mapped_part.h"

#include <sys/mman.h>

namespace hora::os {

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
