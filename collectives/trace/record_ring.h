// SPDX-License-Identifier: Apache-2.0
// Records of any length from one thread to another, without a lock: the writing side never waits.
//
// A record begins with its size in bytes (std::uint32_t), a multiple of 8, and lies in one stretch.
// "One thread" may change as long as one use happens before the next.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

namespace hora::collectives {

class RecordRing {
 public:
  // `bytes`: a power of two.
  explicit RecordRing(std::size_t bytes) : data_(new char[bytes]), mask_(bytes - 1) {}

  std::size_t capacity() const { return mask_ + 1; }
  // Writing side. At least this much is free, since the other side only frees space.
  std::size_t used() const {
    return static_cast<std::size_t>(head_ - tail_.load(std::memory_order_acquire));
  }

  // Writing side: room for a record of `bytes` (its size is filled in), null when there is none.
  char* reserve(std::uint32_t bytes) {
    const auto at = static_cast<std::size_t>(head_) & mask_;
    const std::size_t to_the_end = capacity() - at;
    const std::size_t skipped = to_the_end < bytes ? to_the_end : 0;
    if (used() + skipped + bytes > capacity()) return nullptr;
    if (skipped > 0) {
      put_size(at, static_cast<std::uint32_t>(skipped) | kSkip);
      head_ += skipped;
    }
    const auto start = static_cast<std::size_t>(head_) & mask_;
    put_size(start, bytes);
    head_ += bytes;
    return data_.get() + start;
  }
  // Writing side: the reader may have everything reserved so far.
  void commit() { published_.store(head_, std::memory_order_release); }

  // Reading side: calls function(record) for each, oldest first. Answers whether there was any.
  template <typename Function>
  bool drain(const Function& function) {
    const std::uint64_t end = published_.load(std::memory_order_acquire);
    std::uint64_t at = tail_.load(std::memory_order_relaxed);
    const bool any = at != end;
    while (at != end) {
      const char* record = data_.get() + (static_cast<std::size_t>(at) & mask_);
      std::uint32_t bytes = 0;
      std::memcpy(&bytes, record, sizeof bytes);
      if ((bytes & kSkip) == 0) function(record);
      at += bytes & ~kSkip;
      tail_.store(at, std::memory_order_release);
    }
    return any;
  }

 private:
  static constexpr std::uint32_t kSkip = 1;  // sizes are multiples of 8: the bit is free

  void put_size(std::size_t at, std::uint32_t bytes) {
    std::memcpy(data_.get() + at, &bytes, sizeof bytes);
  }

  std::unique_ptr<char[]> data_;
  std::size_t mask_;
  std::uint64_t head_ = 0;  // reserved; of the writing side
  alignas(64) std::atomic<std::uint64_t> published_{0};
  alignas(64) std::atomic<std::uint64_t> tail_{0};
};

}  // namespace hora::collectives
