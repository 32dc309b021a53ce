// SPDX-License-Identifier: Apache-2.0
// One file of a part of the bundle.  [pure]
#pragma once

#include <string>

#include "launcher/protocol/messages.h"

namespace hora::launcher {

struct PartFile {
  BundleFile file;     // as it lies on hosts
  std::string sha256;  // lower-case hex
  std::string source;  // its path on this machine
};

}  // namespace hora::launcher
