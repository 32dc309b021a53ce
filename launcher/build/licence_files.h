// SPDX-License-Identifier: Apache-2.0
// The licence texts of what is sent to other machines.
#pragma once

#include <string>
#include <vector>

#include "launcher/build/part_file.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

struct LicenceFile {
  std::string package;
  std::string path;
};

// Those of the packages (dpkg, rpm) that own the files; none for files that no package owns. Reads
// the lists of dpkg, about 20 MB; asks rpm in a child process.
std::vector<LicenceFile> find_licence_files(const std::vector<std::string>& files);

// The same as files of a part, in a folder for each package below `folder`.
Result<std::vector<PartFile>> licence_parts(const std::vector<std::string>& files,
                                            const std::string& folder);

}  // namespace hora::launcher
