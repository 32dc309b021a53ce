// SPDX-License-Identifier: Apache-2.0
// A look at CBOR bytes before a reader that relies on their lengths gets them.  [pure]
#pragma once

#include <cstddef>
#include <string_view>

#include "rendezvous/base/result.h"

namespace hora::launcher {

// The deepest nesting and the most items that a message of ours can have, with room to grow.
inline constexpr std::size_t kMaxCborDepth = 16;
inline constexpr std::size_t kMaxCborItems = 1u << 20;

// One whole value of the kinds that messages are made of (integers, byte and text strings, arrays,
// maps, true, false, null; all of definite length), no deeper and of no more items than the limits,
// and nothing behind it.
Status check_cbor_shape(std::string_view bytes, std::size_t most_items = kMaxCborItems);

}  // namespace hora::launcher
