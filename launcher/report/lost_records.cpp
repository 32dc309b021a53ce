// SPDX-License-Identifier: Apache-2.0
#include "launcher/report/lost_records.h"

#include <algorithm>

namespace hora::launcher {

namespace {

constexpr std::size_t kMostRows = 32;

}  // namespace

std::string lost_records_text(const std::vector<LostRecord>& lost) {
  if (lost.empty()) return {};
  std::string text = "not all of the job's record could be written:\n";
  for (std::size_t i = 0; i < std::min(lost.size(), kMostRows); ++i) {
    text += "  " + lost[i].what + ": " + lost[i].reason + " [" + lost[i].code + "]\n";
  }
  if (lost.size() > kMostRows) {
    text += "  and " + std::to_string(lost.size() - kMostRows) + " more\n";
  }
  return text;
}

}  // namespace hora::launcher
