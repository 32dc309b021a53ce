// SPDX-License-Identifier: Apache-2.0
// Names of hosts, programs and tensors may be in any script. A terminal shows most characters in
// one cell each, and half a character as garbage, so characters count here and not bytes.
#include "launcher/text/columns.h"

#include <algorithm>

namespace hora::launcher {

namespace {

constexpr std::string_view kLeftOut = "...";

// All bytes of a character but the first are 10xxxxxx.
bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0u) != 0x80u; }

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

// Where character number `index` begins.
std::size_t place_of(std::string_view text, std::size_t index) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (begins_character(text[at]) && index-- == 0) return at;
  }
  return text.size();
}

}  // namespace

std::string shortened(std::string_view text, std::size_t most) {
  if (characters(text) <= most) return std::string(text);
  const std::size_t kept = most - std::min(most, kLeftOut.size());
  return std::string(text.substr(0, place_of(text, kept))) + std::string(kLeftOut);
}

std::string column(std::string_view text, std::size_t width) {
  std::string out(text.empty() ? "-" : text);
  const std::size_t length = characters(out);
  out.append(std::max(width, length + 2) - length, ' ');
  return out;
}

}  // namespace hora::launcher
