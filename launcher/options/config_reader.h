// SPDX-License-Identifier: Apache-2.0
// The files of a configuration: read as the command line asks for them. At most
// 16 MiB each. Errors name the file: kNotFound for one that does not exist, kUsage for one that
// must not be used.
#pragma once

#include <string>

#include "rendezvous/base/result.h"

namespace hora::launcher {

Result<std::string> read_text_file(const std::string& path);

// A default file: only of the user or root, and one that others cannot write, since it says which
// commands are run.
Result<std::string> read_own_text_file(const std::string& path);

}  // namespace hora::launcher
