// SPDX-License-Identifier: Apache-2.0
// Removes a directory and all in it; never follows a symbolic link, never leaves the tree.
#pragma once

#include <string>

#include "rendezvous/base/result.h"

namespace hora::launcher {

// A tree that is not there is no error.
Status remove_tree(const std::string& path);

}  // namespace hora::launcher
