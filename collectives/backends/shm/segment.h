// A stretch of memory that the ranks of a process set on one host share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/backends/backend.h"

namespace hora::collectives {

class Segment {
 public:
  Segment() = default;
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  // Collective over the set: made by index 0, mapped by all, zeroed, without a name in any file
  // system when this returns. False on all ranks when one of them cannot.
  bool open(const GroupContext& group, std::size_t bytes, ErrorText& error);

  void* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace hora::collectives
