// SPDX-License-Identifier: Apache-2.0
// Cuts the files of a tree into parts.  [pure]
#pragma once

#include <vector>

#include "launcher/build/part_file.h"

namespace hora::launcher {

// Sorts the files by their paths and cuts where a folder ends, and between files by their names, so
// that a file that is added, removed or changed makes one or two parts anew, of a few MB each. A
// large file is a part of its own.
std::vector<std::vector<PartFile>> cut_tree(std::vector<PartFile> files);

}  // namespace hora::launcher
