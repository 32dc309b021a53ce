// SPDX-License-Identifier: Apache-2.0
// Hexadecimal and base64 text.  [pure]
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hora {

// Bytes as lower-case hexadecimal text, and back.

std::string to_hex(std::string_view bytes);
// Returns nothing for an odd length or any character but 0-9a-fA-F.
std::optional<std::string> from_hex(std::string_view text);

// Compares secrets: the time depends only on the lengths.
bool equals_in_constant_time(std::string_view a, std::string_view b);

// Bytes as base64 (RFC 4648), and back.

std::string to_base64(std::string_view bytes);
// Lenient about line breaks and padding, as Python's decoder is. Nothing for any other character.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace hora
