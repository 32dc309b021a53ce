// SPDX-License-Identifier: Apache-2.0
// What a remote shell prints, in pieces of any size, leads to the same events. The first byte of
// the input is the size of the pieces.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "launcher/transports/bootstrap.h"

namespace {

using hora::launcher::BootstrapDialogue;

// One line of text per event; the bytes after the magic last.
std::vector<std::string> events_of(const std::string& bytes, std::size_t step) {
  BootstrapDialogue dialogue("n0nce");
  std::vector<std::string> events;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    auto event = dialogue.feed(bytes.substr(at, step));
    while (!std::holds_alternative<BootstrapDialogue::Listening>(event)) {
      if (const auto* need = std::get_if<BootstrapDialogue::Need>(&event)) {
        events.push_back("need " + std::to_string(need->gzip) + need->machine + need->directory);
      } else if (const auto* other = std::get_if<BootstrapDialogue::OtherMachine>(&event)) {
        events.push_back("machine " + other->machine);
        return events;
      } else if (const auto* failed = std::get_if<BootstrapDialogue::Failed>(&event)) {
        events.push_back("failed " + unfit_text(failed->directories));
        return events;
      } else {
        const std::string rest = std::get<BootstrapDialogue::Started>(event).rest +
                                 bytes.substr(std::min(at + step, bytes.size()));
        events.push_back("started " + rest);
        return events;
      }
      event = dialogue.feed({});
    }
    if (dialogue.noise().size() > 2 * hora::launcher::MagicFinder::kMaxNoise + 4096) std::abort();
  }
  return events;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > 32 * 1024) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (events_of(bytes, data[0] + 1u) != events_of(bytes, bytes.size())) std::abort();
  return 0;
}
