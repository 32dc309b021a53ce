// SPDX-License-Identifier: Apache-2.0
// Removes a directory and all in it; never follows a symbolic link, never leaves the tree.
#pragma once

#include <string>

#include "rendezvous/base/result.h"

namespace hora::launcher {

// A tree that is not there is no error. Goes on past what cannot be removed; the error is that of
// the first. Takes as long as the file system does; any thread may call.
Status remove_tree(const std::string& path);

}  // namespace hora::launcher
