// SPDX-License-Identifier: Apache-2.0
// Packs what agents receive: bytes into one zstd frame, cut into protocol frames.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"

namespace hora::launcher {

class FramePacker {
 public:
  explicit FramePacker(int level);
  ~FramePacker();
  FramePacker(const FramePacker&) = delete;
  FramePacker& operator=(const FramePacker&) = delete;

  Status add(std::string_view bytes);
  struct Packed {
    std::string sha256;  // of the zstd frame, lower-case hex
    std::string frames;  // kData..., kDataEnd
  };
  Result<Packed> finish();

 private:
  struct State;
  Status run(std::string_view bytes, bool last);

  std::unique_ptr<State> state_;
};

}  // namespace hora::launcher
