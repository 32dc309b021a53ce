// SPDX-License-Identifier: Apache-2.0
// Which function of an ELF file an address belongs to.
//
// Reads only what it needs of the file, in pieces: a library may have hundreds of megabytes, and
// any bytes are safe to give. Takes as long as the file system does; any thread may call.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace hora::launcher {

// `offsets`: places in the file, as /proc/PID/maps counts them. Answers the names as the linker has
// them; places without a name are left out.
std::map<std::uint64_t, std::string> find_elf_symbols(const std::string& path,
                                                      const std::vector<std::uint64_t>& offsets);

// "hora::collectives::Driver::run" for "_ZN4hora11collectives6Driver3runEv": without arguments.
std::string readable_symbol(const std::string& symbol);

}  // namespace hora::launcher
