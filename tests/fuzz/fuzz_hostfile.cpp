// SPDX-License-Identifier: Apache-2.0
// A hostfile: any bytes give hosts that are printed and read back the same, or an error that begins
// with the file's name.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "launcher/plan/host_list.h"

using namespace hora::launcher;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto hosts = parse_hostfile(text, "file");
  if (!hosts) {
    if (hosts.error().message.substr(0, 5) != "file:") std::abort();
    return 0;
  }
  std::string printed;
  for (const Host& host : *hosts) printed += format_host(host) + "\n";
  const auto again = parse_hostfile(printed, "file");
  if (!again || *again != *hosts) std::abort();
  return 0;
}
