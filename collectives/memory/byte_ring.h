// SPDX-License-Identifier: Apache-2.0
// A stream of bytes from one process to another through shared memory: one writes, one reads,
// neither blocks. Each side belongs to one thread at a time.
//
// `written` and `read` count bytes and never wrap in practice (64 bits); their difference is the
// fill.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace hora::collectives {

class ByteRing {
 public:
  // A power of two.
  static constexpr std::size_t kCapacity = 32 * 1024;

  // In shared memory, which starts zeroed. The two counters have cache lines of their own, since
  // different cores write them.
  struct Memory {
    alignas(64) std::atomic<std::uint64_t> written;
    alignas(64) std::atomic<std::uint64_t> read;
    // The writer has more than fits and wants to be woken when there is room.
    std::atomic<std::uint32_t> writer_waits;
    alignas(64) char bytes[kCapacity];
  };

  void attach(Memory* memory) { memory_ = memory; }

  // Writer: writes as much as fits and returns how much that is.
  std::size_t write(std::string_view bytes) {
    const std::uint64_t written = memory_->written.load(std::memory_order_relaxed);
    // Look at the reader's counter only when the known room is too small: a look takes the reader's
    // cache line. Acquire pairs with the reader's release: it has finished with the bytes.
    if (kCapacity - (written - known_read_) < bytes.size()) {
      known_read_ = memory_->read.load(std::memory_order_acquire);
    }
    const std::size_t room = kCapacity - static_cast<std::size_t>(written - known_read_);
    const std::size_t count = std::min(room, bytes.size());
    const std::size_t start = static_cast<std::size_t>(written) % kCapacity;
    const std::size_t first = std::min(count, kCapacity - start);
    std::memcpy(memory_->bytes + start, bytes.data(), first);
    std::memcpy(memory_->bytes, bytes.data() + first, count - first);
    // Release: the reader sees the bytes when it sees the counter.
    memory_->written.store(written + count, std::memory_order_release);
    return count;
  }

  // Writer: announces that it waits for room. It has to look once more afterwards; the fence pairs
  // with that in take_writer_waits().
  void want_room() {
    memory_->writer_waits.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  bool has_room() const {
    return memory_->written.load(std::memory_order_relaxed) -
               memory_->read.load(std::memory_order_acquire) <
           kCapacity;
  }

  // Reader.
  bool empty() const {
    return memory_->written.load(std::memory_order_acquire) ==
           memory_->read.load(std::memory_order_relaxed);
  }
  // Passes all available bytes to sink(bytes), in one or two portions.
  template <typename Sink>
  void read(const Sink& sink) {
    const std::uint64_t read = memory_->read.load(std::memory_order_relaxed);
    const std::uint64_t written = memory_->written.load(std::memory_order_acquire);
    if (written == read) return;
    // Never more than the capacity, whatever the other process has written into the counter.
    const std::size_t count = std::min(static_cast<std::size_t>(written - read), kCapacity);
    const std::size_t start = static_cast<std::size_t>(read) % kCapacity;
    const std::size_t first = std::min(count, kCapacity - start);
    sink(std::string_view(memory_->bytes + start, first));
    if (count > first) sink(std::string_view(memory_->bytes, count - first));
    memory_->read.store(read + count, std::memory_order_release);
  }
  // Reader, after read(): whether the writer waits for the room that read() has made; true once.
  bool take_writer_waits() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return memory_->writer_waits.load(std::memory_order_relaxed) != 0 &&
           memory_->writer_waits.exchange(0, std::memory_order_acq_rel) != 0;
  }

 private:
  Memory* memory_ = nullptr;
  std::uint64_t known_read_ = 0;  // writer: a lower bound of the reader's counter
};

}  // namespace hora::collectives
