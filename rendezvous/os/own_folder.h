// SPDX-License-Identifier: Apache-2.0
// Folders and files that belong to this user alone: what is remembered from launch to launch.
#pragma once

#include <cstddef>
#include <string>

#include "rendezvous/base/result.h"
#include "rendezvous/os/fd.h"

namespace hora::os {

// The folder, if it belongs to us alone: not a link, and nobody else may write or read there.
// `make`: with its parent, where it is missing. Invalid where it is not ours.
Fd open_own_folder(const std::string& folder, bool make);

// A regular file of such a folder that nobody else may write; at most `limit` bytes.
Result<std::string> read_own_file(const std::string& folder, const std::string& name,
                                  std::size_t limit);

}  // namespace hora::os
