// SPDX-License-Identifier: Apache-2.0
// horarun timeline merge: reads the ranks' files, writes one. Takes as long as the files do.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::launcher {

// Returns a line for the user. "-", like /dev/stdout, is standard output, which then is not used
// for that line. Errors name the file, and the line where there is one. A file of a rank that was
// killed is taken as far as it goes.
Result<std::string> merge_timelines(const std::vector<std::string>& paths,
                                    const std::string& output);

}  // namespace hora::launcher
