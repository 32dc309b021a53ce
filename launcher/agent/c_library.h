// SPDX-License-Identifier: Apache-2.0
// Which C library the programs of this host load. The agent has its own inside, so it looks at
// files.
#pragma once

#include <string>

namespace hora::launcher {

// "glibc 2.31"; "musl" on a host that has only that; "none" where no dynamic program can start;
// empty when the agent cannot tell. `root` comes before every path: "" but in tests.
std::string c_library(const std::string& root = "");

}  // namespace hora::launcher
