// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/frame_boundaries.h"

#include <algorithm>

namespace hora::launcher {

// A header may arrive in pieces, a payload is only counted: the stream passes once, and nothing of
// it is kept.
void FrameBoundaries::pass(std::string_view bytes) {
  while (!bytes.empty()) {
    if (left_ > 0) {
      const std::size_t part = std::min(left_, bytes.size());
      left_ -= part;
      bytes.remove_prefix(part);
      continue;
    }
    const std::size_t part = std::min(kFrameHeaderSize - header_.size(), bytes.size());
    header_.append(bytes.substr(0, part));
    bytes.remove_prefix(part);
    if (header_.size() < kFrameHeaderSize) return;
    std::string_view header = header_;
    left_ = *read_u32(header);
    last_type_ = static_cast<FrameType>(header.front());
    header_.clear();
  }
}

}  // namespace hora::launcher
