// SPDX-License-Identifier: Apache-2.0
// A list of --include and --exclude: any bytes leave some of the hosts, with no more slots than
// they had, or give a message.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "launcher/plan/selection.h"

using namespace hora::launcher;

namespace {

void check(const hora::Result<std::vector<Host>>& left) {
  if (!left) {
    if (left.error().message.empty()) std::abort();
    return;
  }
  if (left->empty() || left->size() > 3) std::abort();
  for (const Host& host : *left) {
    if (!host.gpus.empty() && static_cast<int>(host.gpus.size()) != host.slots) std::abort();
    if (host.name != "c" && host.slots.value_or(4) > 4) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto terms = parse_host_terms(text, "--include");
  if (!terms) {
    if (terms.error().message.empty()) std::abort();
    return 0;
  }
  const std::vector<Host> hosts{{"a", "", 4}, {"b", "me", 4}, {"c", "", {}}};
  check(include_hosts(hosts, *terms, {}));
  check(exclude_hosts(hosts, *terms, {}));
  check(exclude_hosts(hosts, *terms, 2));
  return 0;
}
