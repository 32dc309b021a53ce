// SPDX-License-Identifier: Apache-2.0
// Copies data that is not needed again soon, past the caches: that avoids reading the target's
// lines first and leaves the caches to other data. On ARM64 it is memcpy(): those cores notice by
// themselves that whole lines are written, and then do not read them first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace hora::collectives {

inline void stream_copy(char* to, const char* from, std::size_t bytes) {
#if defined(__x86_64__)
  constexpr std::size_t kLine = 64;
  // Streaming stores need whole, aligned lines to be fast: memcpy the edges.
  const std::size_t ahead = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
  if (bytes >= ahead + kLine) {
    std::memcpy(to, from, ahead);
    std::size_t at = ahead;
    for (; at + kLine <= bytes; at += kLine) {
      for (std::size_t place = at; place < at + kLine; place += sizeof(__m128i)) {
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
