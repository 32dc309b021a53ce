// SPDX-License-Identifier: Apache-2.0
// How far the monotonic clocks of two hosts are apart, from messages that went both ways.  [pure]
//
// What a rank sends is received later: each message bounds the offset from one side.
#pragma once

#include <algorithm>
#include <cstdint>

namespace hora::collectives {

class ClockOffset {
 public:
  // Rank 0 said `zero_sent_ns` (its clock), which was here at `received_ns` (ours).
  void heard(std::int64_t zero_sent_ns, std::int64_t received_ns) {
    most_ = std::min(most_, received_ns - zero_sent_ns);
  }
  // What was sent at `sent_ns` (ours) was with rank 0 at `zero_received_ns` (its clock).
  void answered(std::int64_t sent_ns, std::int64_t zero_received_ns) {
    least_ = std::max(least_, sent_ns - zero_received_ns);
  }

  bool known() const { return least_ != INT64_MIN && most_ != INT64_MAX; }
  // Our clock minus rank 0's; known to within error_ns().
  std::int64_t offset_ns() const { return known() ? least_ + (most_ - least_) / 2 : 0; }
  std::int64_t error_ns() const { return known() ? (most_ - least_ + 1) / 2 : 0; }

 private:
  std::int64_t least_ = INT64_MIN;
  std::int64_t most_ = INT64_MAX;
};

}  // namespace hora::collectives
