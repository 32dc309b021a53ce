// SPDX-License-Identifier: Apache-2.0
// One file of a part of the bundle.  [pure]
#pragma once

#include <cstddef>
#include <string>

#include "launcher/build/file_stamp.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher {

struct PartFile {
  BundleFile file;       // as it lies on hosts
  std::string sha256;    // lower-case hex
  std::string source;    // its path on this machine
  FileStamp stamp = {};  // of the source, when it was looked at
  // Hosts get these bytes in place of the first `replaced` ones.
  std::string head = {};
  std::size_t replaced = 0;
};

}  // namespace hora::launcher
