// SPDX-License-Identifier: Apache-2.0
// What decides which libraries the dynamic loader loads: ELF files, the loader that an executable
// names, and /etc/ld.so.cache.  [pure]
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hora::launcher {

// What an ELF file asks of the dynamic loader, and which loader an executable names.

// What an ELF file asks of the dynamic loader. Reads only what it needs, in pieces, since a library
// may have hundreds of megabytes; any bytes are safe to give.

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

// The dynamic loader that an executable names, which the kernel starts first. Files of 32
// bits count, too: a host that runs them may lack their loader.

// "/lib64/ld-linux-x86-64.so.2". Nothing: the file is not a little-endian ELF file, is linked
// statically, or is damaged.
std::optional<std::string> parse_elf_loader(const ReadAt& read_at);

// The list of libraries that ldconfig makes for glibc's loader: /etc/ld.so.cache.

class LoaderCache {
 public:
  // Any bytes are safe to give; those that are no such list name no files.
  explicit LoaderCache(std::string bytes);

  // The files of that name, in the loader's order; of all processors that the machine serves.
  std::vector<std::string> files_of(std::string_view soname) const;

 private:
  std::string_view list() const { return std::string_view(bytes_).substr(begin_); }

  std::string bytes_;
  std::size_t begin_ = 0;  // of the list, in bytes_
  std::size_t count_ = 0;  // of its entries
};

}  // namespace hora::launcher
