// Copying what nobody will look at soon: past the caches, which saves reading the target's lines
// first and leaves the caches to those who have use for them.
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
    // Streams overtake other stores: whoever is told that it is there must find it there.
    _mm_sfence();
    std::memcpy(to + at, from + at, bytes - at);
    return;
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace hora::collectives
