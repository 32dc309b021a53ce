// SPDX-License-Identifier: Apache-2.0
// Decides which names a launcher may create below the agent's directories.  [pure]
#pragma once

#include <string_view>
#include "rendezvous/base/result.h"

namespace hora::launcher {

// Relative, '/'-separated, without empty, "." or ".." parts and without NUL: it cannot lead out.
Status check_relative_path(std::string_view path);

// Whether a symbolic link at `path`, as above, that holds `target` stays inside the tree.
Status check_link_target(std::string_view path, std::string_view target);

}  // namespace hora::launcher
