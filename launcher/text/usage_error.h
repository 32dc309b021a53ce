// SPDX-License-Identifier: Apache-2.0
// The error of whoever typed it.  [pure]
#pragma once

#include <string>
#include <utility>

#include "rendezvous/base/result.h"

namespace hora::launcher {

// For what is wrong with the command line, or with a file that it names: exit code 2.
inline Error usage(std::string message) {
  return make_error(ErrorCode::kUsage, std::move(message));
}

}  // namespace hora::launcher
