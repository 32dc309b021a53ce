// SPDX-License-Identifier: Apache-2.0
// Where the frames of a passing stream end, so that a frame of ours can follow a whole one.  [pure]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "launcher/protocol/frame.h"

namespace hora::launcher {

class FrameBoundaries {
 public:
  void pass(std::string_view bytes);

  // All bytes so far are whole frames.
  bool between_frames() const { return left_ == 0 && header_.empty(); }
  // The last frame that began says why its sender ends.
  bool has_last_frame() const {
    return last_type_ == FrameType::kGoodbye || last_type_ == FrameType::kFailure;
  }

 private:
  std::string header_;    // of the next frame, as far as it has arrived
  std::size_t left_ = 0;  // of the payload that is passing
  FrameType last_type_ = FrameType::kHeartbeat;
};

}  // namespace hora::launcher
