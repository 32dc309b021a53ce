// SPDX-License-Identifier: Apache-2.0
// A rank's timeline, as `horarun timeline merge` reads it: any lines give events that are whole
// JSON and read back, or an error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "launcher/timeline/timeline_merge.h"

using namespace hora::launcher;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  TimelineSource source;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view event = timeline_event(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (event.empty()) continue;
    if (const auto found = read_timeline_source(event)) source = *found;
    const auto merged = merged_event(event, source, 1'000);
    if (!merged || !*merged) continue;
    // What is written is one line, and an event like those that are read.
    if ((*merged)->find('\n') != std::string::npos) std::abort();
    if (!merged_event(timeline_event(**merged), source, 0)) std::abort();
  }
  return 0;
}
