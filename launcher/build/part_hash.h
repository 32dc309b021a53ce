// SPDX-License-Identifier: Apache-2.0
// The hash that hosts know a part of the bundle by, for parts that are made at launch.
#pragma once

#include <string>
#include <vector>

#include "launcher/build/part_file.h"

namespace hora::launcher {

// Sorts the files by their paths first: their order must not matter.
std::string part_hash(std::vector<PartFile>& files);

}  // namespace hora::launcher
