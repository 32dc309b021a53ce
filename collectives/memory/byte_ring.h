// A stream of bytes from one process to another through memory that both see: one writes, one
// reads, neither waits.
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

  // In shared memory, zeroed at first.
  struct Memory {
    alignas(64) std::atomic<std::uint64_t> written;
    alignas(64) std::atomic<std::uint64_t> read;
    // The writer has more than fits, and is to be woken when there is room.
    std::atomic<std::uint32_t> writer_waits;
    alignas(64) char bytes[kCapacity];
  };

  void attach(Memory* memory) { memory_ = memory; }

  // Writer: as much as fits. Answers how much.
  std::size_t write(std::string_view bytes) {
    const std::uint64_t written = memory_->written.load(std::memory_order_relaxed);
    if (kCapacity - (written - known_read_) < bytes.size()) {
      known_read_ = memory_->read.load(std::memory_order_acquire);
    }
    const std::size_t room = kCapacity - static_cast<std::size_t>(written - known_read_);
    const std::size_t count = std::min(room, bytes.size());
    const std::size_t start = static_cast<std::size_t>(written) % kCapacity;
    const std::size_t first = std::min(count, kCapacity - start);
    std::memcpy(memory_->bytes + start, bytes.data(), first);
    std::memcpy(memory_->bytes, bytes.data() + first, count - first);
    memory_->written.store(written + count, std::memory_order_release);
    return count;
  }

  // Writer: announces that it waits for room; to be followed by one more look.
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
  // Everything that is there, to sink(bytes), in one or two portions.
  template <typename Sink>
  void read(const Sink& sink) {
    const std::uint64_t read = memory_->read.load(std::memory_order_relaxed);
    const std::uint64_t written = memory_->written.load(std::memory_order_acquire);
    if (written == read) return;
    // No more than fits, whatever the other process has written there.
    const std::size_t count = std::min(static_cast<std::size_t>(written - read), kCapacity);
    const std::size_t start = static_cast<std::size_t>(read) % kCapacity;
    const std::size_t first = std::min(count, kCapacity - start);
    sink(std::string_view(memory_->bytes + start, first));
    if (count > first) sink(std::string_view(memory_->bytes, count - first));
    memory_->read.store(read + count, std::memory_order_release);
  }
  // Reader, after read(): whether the writer waits for the room; true once.
  bool take_writer_waits() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return memory_->writer_waits.load(std::memory_order_relaxed) != 0 &&
           memory_->writer_waits.exchange(0, std::memory_order_acq_rel) != 0;
  }

 private:
  Memory* memory_ = nullptr;
  std::uint64_t known_read_ = 0;  // writer: the reader is at least so far
};

}  // namespace hora::collectives
