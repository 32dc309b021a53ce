// SPDX-License-Identifier: Apache-2.0
// Bytes as base64 (RFC 4648), and back.  [pure]
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hora {

std::string to_base64(std::string_view bytes);
// Lenient about line breaks and padding, as Python's decoder is. Nothing for any other character.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace hora
