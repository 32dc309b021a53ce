// SPDX-License-Identifier: Apache-2.0
// Bytes as lower-case hexadecimal text, and back.  [pure]
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hora {

std::string to_hex(std::string_view bytes);
// Returns nothing for an odd length or any character but 0-9a-fA-F.
std::optional<std::string> from_hex(std::string_view text);

// Compares secrets: the time depends only on the lengths.
bool equals_in_constant_time(std::string_view a, std::string_view b);

}  // namespace hora
