// SPDX-License-Identifier: Apache-2.0
// The system call futex(2), which the C library does not wrap. Returns -1 with errno on failure.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace hora::collectives {

inline long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
                  const timespec* timeout) {
  static_assert(sizeof(word) == 4);
  return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout,
                 nullptr, 0);
}

}  // namespace hora::collectives
