// SPDX-License-Identifier: Apache-2.0
// What a job has written incompletely or not at all: files of its output, its report, its events, a
// timeline. [pure] The user is informed, and the job has not succeeded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hora::launcher {

struct LostRecord {
  std::string what;    // "--output-filename: out/rank.0/stdout"
  std::string reason;  // "No space left on device"
  std::string code;    // its class: launcher/failures/failure_code.h
};

// Whole lines, without the program's name; empty when nothing is lost.
std::string lost_records_text(const std::vector<LostRecord>& lost);

}  // namespace hora::launcher
