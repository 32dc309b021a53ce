// SPDX-License-Identifier: Apache-2.0
// The output of a PMI server after its reply (messages.h PmiReply): pairs of 4-byte numbers, rank
// and exit code of a rank that waits to be ended; kPmiUsed and 0 when the first rank has begun to
// use it; or kPmiNote and the length of a sentence for the user, which follows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hora::launcher {

inline constexpr std::uint32_t kPmiNote = UINT32_MAX;
inline constexpr std::uint32_t kPmiUsed = UINT32_MAX - 1;
inline constexpr std::size_t kMostPmiNote = 2048;  // bytes of the sentence

}  // namespace hora::launcher
