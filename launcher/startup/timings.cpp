// SPDX-License-Identifier: Apache-2.0
// Two columns for each phase: the time since the start, and the time since the phase before.
#include "launcher/startup/timings.h"

#include <cstdio>

#include "rendezvous/base/duration.h"

namespace hora::launcher {

std::string Timings::text() const {
  std::string text;
  auto before = start_;
  for (const auto& [phase, when] : marks_) {
    char figures[64];
    std::snprintf(figures, sizeof figures, "%10.3f ms  +%9.3f  ", fractional_ms(when - start_),
                  fractional_ms(when - before));
    text += figures + phase + "\n";
    before = when;
  }
  return text;
}

}  // namespace hora::launcher
