// SPDX-License-Identifier: Apache-2.0
// A configuration file: any bytes give settings, or an error that begins with its path.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/config_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> warnings;
  const auto settings = hora::launcher::read_config_file(text, "file", warnings);
  if (settings) return 0;
  if (settings.error().message.substr(0, 5) != "file:") std::abort();
  return 0;
}
