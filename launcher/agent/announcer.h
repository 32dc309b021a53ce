// SPDX-License-Identifier: Apache-2.0
// Tells the shim what to remove if a kill prevents the agent from doing it.
#pragma once

#include <functional>
#include <string>

#include "launcher/agent/shim.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

inline std::function<Status(const std::string&)> announcer(char (&text)[PATH_MAX]) {
  return [&text](const std::string& path) -> Status {
    if (!set_shared_text(text, path)) {
      return make_error(ErrorCode::kFailed, "the path " + path.substr(0, 80) + "... is too long");
    }
    return Ok{};
  };
}

}  // namespace hora::launcher
