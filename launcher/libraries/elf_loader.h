// SPDX-License-Identifier: Apache-2.0
// The dynamic loader that an executable names, which the kernel starts in its place. Files of 32
// bits count, too: a host that runs them may lack their loader.  [pure]
#pragma once

#include <optional>
#include <string>

#include "launcher/libraries/elf_dynamic.h"

namespace hora::launcher {

// "/lib64/ld-linux-x86-64.so.2". Nothing: the file is no little-endian ELF file, is linked
// statically, or is damaged.
std::optional<std::string> parse_elf_loader(const ReadAt& read_at);

}  // namespace hora::launcher
