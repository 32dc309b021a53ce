// SPDX-License-Identifier: Apache-2.0
// Apart from size.cpp, which reads fractions: the agent prints sizes and reads none, and every host
// is sent what it is linked with.
#include "launcher/text/size.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kUnits = "KMGT";

}  // namespace

std::string format_size(std::uint64_t bytes) {
  std::size_t power = 0;
  while (power < kUnits.size() && (bytes >> (10 * power)) >= 1024) ++power;
  // Bytes are exact, and have no unit to confuse them with.
  if (power == 0) return std::to_string(bytes);
  const std::uint64_t unit = std::uint64_t{1} << (10 * power);
  const std::uint64_t tenths = bytes / unit * 10 + (bytes % unit * 10 + unit / 2) / unit;
  std::string text = std::to_string(tenths / 10);
  if (tenths < 1000) text += "." + std::to_string(tenths % 10);
  return text + kUnits[power - 1];
}

}  // namespace hora::launcher
