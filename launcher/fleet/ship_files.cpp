// SPDX-License-Identifier: Apache-2.0
#include "launcher/fleet/ship_files.h"

#include "launcher/build/bundle.h"

namespace hora::launcher {

ShipFiles::ShipFiles(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    auto frames = ship_file_frames(path);
    if (!frames) {
      status_ = std::move(frames).error();
      return;
    }
    frames_.push_back(std::make_shared<const std::string>(std::move(*frames)));
  }
}

}  // namespace hora::launcher
