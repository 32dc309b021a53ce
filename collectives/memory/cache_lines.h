// SPDX-License-Identifier: Apache-2.0
// Which core has a cache line, where that decides the time that a copy takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace hora::collectives {

inline constexpr std::size_t kLineBytes = 64;

// Requests exclusive ownership of a cache line without waiting for it. GCC emits prefetchw for
// __builtin_prefetch only when the target has it enabled, so x86-64 names the instruction.
inline void fetch_to_write(const void* address) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

// Takes lines over from the core that has written them, before they are read. A read alone leaves
// them with both cores, and the next write by the other one has to take each line back, one after
// the other: ten times as long as to fetch lines that one core alone has.
inline void take_lines(const char* at, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes; done += kLineBytes) fetch_to_write(at + done);
}

// Copies data that is not needed again soon, past the caches: that avoids reading the target's
// lines first and leaves the caches to other data. On ARM64 it is memcpy(): those cores notice by
// themselves that whole lines are written, and then do not read them first.
inline void stream_copy(char* to, const char* from, std::size_t bytes) {
#if defined(__x86_64__)
  // Streaming stores need whole, aligned lines to be fast: memcpy the edges.
  const std::size_t ahead =
      (kLineBytes - reinterpret_cast<std::uintptr_t>(to) % kLineBytes) % kLineBytes;
  if (bytes >= ahead + kLineBytes) {
    std::memcpy(to, from, ahead);
    std::size_t at = ahead;
    for (; at + kLineBytes <= bytes; at += kLineBytes) {
      for (std::size_t place = at; place < at + kLineBytes; place += sizeof(__m128i)) {
        _mm_stream_si128(reinterpret_cast<__m128i*>(to + place),
                         _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + place)));
      }
    }
    // Streaming stores are weakly ordered: the fence makes them visible before any later store that
    // announces them.
    _mm_sfence();
    std::memcpy(to + at, from + at, bytes - at);
    return;
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace hora::collectives
