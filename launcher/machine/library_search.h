// SPDX-License-Identifier: Apache-2.0
// Finds shared libraries on this machine where glibc's loader and the programs that load them
// would, without loading them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/machine/elf_dynamic.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// Finds shared libraries on this machine where glibc's loader would, without loading them: the
// agent is static, and what a program would load is to be known before it starts.

struct FoundLibrary {
  std::string soname;  // that was searched
  std::string path;    // as the loader would open it
  ElfDynamic elf;
};

// Each library is read once, however often it is asked for. For one thread.
class LibrarySearch {
 public:
  // `folders` come first, as LD_LIBRARY_PATH and a program's run path do. `root` comes before every
  // path: "" but in tests.
  explicit LibrarySearch(std::vector<std::string> folders, std::string root = "");

  // For this processor. `needed_by`: the library that asks for it, whose run path counts.
  std::optional<FoundLibrary> find(const std::string& soname,
                                   const FoundLibrary* needed_by = nullptr) const;
  // It and everything that it needs, it first; without glibc itself. kNotFound says what is
  // missing.
  Result<std::vector<FoundLibrary>> find_with_needs(const std::string& soname) const;
  // The same for a file that the caller has, such as a plug-in.
  Result<std::vector<FoundLibrary>> needs_of(FoundLibrary first) const;

  // The file there, if it is for this processor.
  std::optional<FoundLibrary> open(const std::string& path) const;

 private:
  std::optional<FoundLibrary> read(const std::string& path) const;
  const LoaderCache& loader_cache() const;

  std::vector<std::string> folders_;
  std::string root_;
  mutable std::optional<LoaderCache> cache_;  // what ldconfig listed, once it is asked for
  mutable std::map<std::string, FoundLibrary> opened_;  // by path
};

// "a:b" as the loader reads it: $ORIGIN, ${ORIGIN} is the folder of `path`; other variables and
// empty entries, which stand for the working directory, are left out.
std::vector<std::string> run_path_folders(std::string_view run_path, std::string_view path);

// "a:b" as in LD_LIBRARY_PATH, without what is relative to a working directory.
std::vector<std::string> absolute_folders(std::string_view list);

// Whether it is a part of glibc, which belongs to the host.
bool is_of_glibc(std::string_view soname);

// Where a program finds shared libraries that the loader alone would not: by its own run path, and,
// for an interpreter of Python, in its packages. Reads folders of this machine.

// In the order of the search; `program` is a path, relative ones have none.
std::vector<std::string> program_folders(const std::string& program);

// The folders of NVIDIA's wheels (nvidia/nccl/lib and its kind) among the packages of the Python
// whose programs are in the folder of `program`. PyTorch, TensorFlow and JAX load their NCCL from
// there. Of a link, its own folder counts, and then that of what it leads to: an environment's
// python is a link.
std::vector<std::string> wheel_folders(const std::string& program);

// The same below folders of packages: "a:b", as PYTHONPATH has them.
std::vector<std::string> wheel_folders_in(std::string_view package_folders);

}  // namespace hora::launcher
