// SPDX-License-Identifier: Apache-2.0
// What an ELF file tells the dynamic loader. Reads only what it needs, in pieces, since a library
// may have hundreds of megabytes; any bytes are safe to give.  [pure]
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace hora::launcher {

struct ElfDynamic {
  int machine = 0;                  // e_machine
  std::string soname;               // may be empty
  std::vector<std::string> needed;  // sonames, in the order in which they are searched
  std::string run_path;             // DT_RUNPATH, otherwise DT_RPATH; as it stands there
  std::string least_glibc;          // "2.34": the newest glibc whose symbols it asks for
  friend bool operator==(const ElfDynamic&, const ElfDynamic&) = default;
};

// Fills `into` with the bytes from `offset` on; false where the file does not have that many.
using ReadAt = std::function<bool(std::uint64_t offset, void* into, std::size_t size)>;

// Nothing: it is no 64-bit ELF file of this byte order, it is not dynamic, or it is damaged.
std::optional<ElfDynamic> parse_elf_dynamic(const ReadAt& read_at);

// The e_machine of files that this program's own machine can load.
int own_elf_machine();

}  // namespace hora::launcher
