// Bytes as lower-case hexadecimal text, and back.  [pure]
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hora {

std::string to_hex(std::string_view bytes);
// Nothing for an odd length or anything but 0-9a-fA-F.
std::optional<std::string> from_hex(std::string_view text);

// Equal or not, in a time that depends on the lengths only: for comparing secrets.
bool equals_in_constant_time(std::string_view a, std::string_view b);

}  // namespace hora
