// SPDX-License-Identifier: Apache-2.0
// The licence texts of what is sent to other machines.
#pragma once

#include <string>
#include <vector>

namespace hora::launcher {

struct LicenceFile {
  std::string package;
  std::string path;
};

// Those of the packages (dpkg, rpm) that own the files; none for files that no package owns. Asks
// the package manager, in a child process. Only for a process without other threads.
std::vector<LicenceFile> find_licence_files(const std::vector<std::string>& files);

}  // namespace hora::launcher
