// SPDX-License-Identifier: Apache-2.0
// Open MPI finds its plug-ins and help texts by OPAL_PREFIX and its kind, PMIx by PMIX_PREFIX; so
// the files can lie where the bundle does. Plug-ins for one network's or one batch system's own
// libraries stay behind: such libraries must match the host's drivers, and TCP and shared memory
// need none of them.
#include "launcher/build/open_mpi_part.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>

#include "launcher/build/part_hash.h"
#include "launcher/libraries/library_search.h"
#include "launcher/text/version.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/paths.h"

namespace hora::launcher {

namespace {

constexpr const char* kMpi = "libmpi.so.40";
constexpr const char* kPmix = "libpmix.so.2";
constexpr std::string_view kRoot = "openmpi";

// A plug-in that needs one of these stays behind; the last is of OpenSHMEM.
constexpr std::string_view kOfTheSite[] = {
    "libfabric.", "libucp.", "libucs.",   "libuct.",      "libucm.",  "libibverbs.",
    "librdmacm.", "libpsm",  "libcuda",   "libnvidia-",   "libhsa-",  "libamdhip",
    "libportals", "libmxm.", "libhcoll.", "libsharp",     "libpbs.",  "libtorque.",
    "libbat.",    "liblsf.", "libslurm",  "liblustreapi", "libpvfs2", "liboshmem."};
// Of the compiler: the host's must win when it is newer.
constexpr std::string_view kOfTheCompiler[] = {"libstdc++.", "libgcc_s.", "libgfortran.",
                                               "libquadmath."};

template <typename Names>
bool begins_as_one_of(std::string_view soname, const Names& names) {
  return std::any_of(std::begin(names), std::end(names), [soname](std::string_view name) {
    return soname.substr(0, name.size()) == name;
  });
}

// The folder of the library's name, and of the file that it leads to.
std::vector<std::string> folders_around(const FoundLibrary& library) {
  return {os::folder_of(library.path), os::folder_of(os::real_path(library.path))};
}

// The name of a plug-in ends in ".so" and has no version; libraries for programs have one.
bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Sorted; empty where there is no such folder.
std::vector<std::string> names_in(const std::string& folder, std::string_view end) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(folder.c_str()), ::closedir);
  if (!directory) return names;
  while (const dirent* item = ::readdir(directory.get())) {
    if (ends_with(item->d_name, end)) names.emplace_back(item->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The first of `folders` + `below` that holds files whose names end so; empty: none does.
std::string first_with(const std::vector<std::string>& folders,
                       const std::vector<std::string>& below, std::string_view end) {
  for (const std::string& folder : folders) {
    for (const std::string& each : below) {
      if (!names_in(folder + each, end).empty()) return folder + each;
    }
  }
  return {};
}

// Follows what the loader, Open MPI and PMIx would open, and adds each file once. Each library is
// known by its soname on hosts: programs ask for that, and the version of the file behind it would
// be one more name for the same.
class Collector {
 public:
  Collector(const std::vector<std::string>& folders, KnownHashes& hashes)
      : system_(folders), hashes_(hashes) {}

  Result<VendorPart> collect();

 private:
  std::optional<FoundLibrary> pmix_of(const FoundLibrary& mpi) const;
  Status add_file(const std::string& source, const std::string& path);
  Status add_library(const FoundLibrary& library, const std::string& folder);
  Status add_with_needs(const FoundLibrary& first);
  Status add_bindings();
  Status add_plugins(const std::string& folder, const std::string& below);
  Status add_texts(const std::string& folder, const std::string& below);

  LibrarySearch system_;
  KnownHashes& hashes_;
  VendorPart part_;
  std::set<std::string> paths_;  // that are in the part
};

// The one that this MPI uses: a build with its own (the wheel of Open MPI 5, say) finds it by its
// run path, and the system's may have another version, with plug-ins that do not fit.
std::optional<FoundLibrary> Collector::pmix_of(const FoundLibrary& mpi) const {
  const auto all = system_.needs_of(mpi);
  if (all) {
    for (const FoundLibrary& each : *all) {
      if (each.soname == kPmix) return each;
    }
  }
  return system_.find(kPmix);  // a plug-in of Open MPI 4 asks for it
}

Status Collector::add_file(const std::string& source, const std::string& path) {
  if (!paths_.insert(path).second) return Ok{};
  // What is known of it is compared when it is packed: an upgrade in between would otherwise leave
  // hosts with a mixture under a name that promises the older one.
  const auto hash = hashes_.of(source);
  if (!hash) return Error(hash.error());
  PartFile& added = part_.files.emplace_back();
  added.file.path = std::string(kRoot) + "/" + path;
  added.file.size_bytes = hash->size_bytes;
  added.file.mode = 0644;
  added.sha256 = hash->sha256;
  added.source = source;
  return Ok{};
}

// The newest glibc of all files: a plug-in that does not load is no error to Open MPI, but then a
// rank would have another set of them than its peers.
Status Collector::add_library(const FoundLibrary& library, const std::string& folder) {
  const std::string& least = library.elf.least_glibc;
  if (!least.empty() &&
      (part_.least_glibc.empty() || compare_versions(least, part_.least_glibc) > 0)) {
    part_.least_glibc = least;
  }
  part_.packaged.push_back(os::real_path(library.path));
  return add_file(library.path, folder + "/" + library.soname);
}

Status Collector::add_with_needs(const FoundLibrary& first) {
  const auto all = system_.needs_of(first);
  if (!all) return Error(all.error());
  for (const FoundLibrary& library : *all) {
    if (begins_as_one_of(library.soname, kOfTheCompiler)) continue;
    HORA_TRY(add_library(library, "lib"));
  }
  return Ok{};
}

// Of C++ and Fortran, where they are installed: programs of these languages link them, too.
Status Collector::add_bindings() {
  for (const char* soname : {"libmpi_cxx.so.40", "libmpi_mpifh.so.40", "libmpi_usempif08.so.40",
                             "libmpi_usempi_ignore_tkr.so.40", "libmpi_usempi.so.40"}) {
    if (const auto library = system_.find(soname)) HORA_TRY(add_library(*library, "lib"));
  }
  return Ok{};
}

// A plug-in whose libraries are not all here does not work on this machine either.
Status Collector::add_plugins(const std::string& folder, const std::string& below) {
  for (const std::string& name : names_in(folder, ".so")) {
    auto plugin = system_.open(folder + "/" + name);
    if (!plugin) continue;
    plugin->soname = name;
    const auto all = system_.needs_of(*plugin);
    const auto stays_behind = [](const FoundLibrary& each) {
      return begins_as_one_of(each.soname, kOfTheSite);
    };
    if (!all || std::any_of(all->begin(), all->end(), stays_behind)) continue;
    for (const FoundLibrary& library : *all) {
      if (begins_as_one_of(library.soname, kOfTheCompiler)) continue;
      HORA_TRY(add_library(library, library.soname == name ? below : "lib"));
    }
  }
  return Ok{};
}

// Without them an error of Open MPI is a note that it has no text for its error.
Status Collector::add_texts(const std::string& folder, const std::string& below) {
  for (const std::string& name : names_in(folder, ".txt")) {
    HORA_TRY(add_file(folder + "/" + name, below + "/" + name));
  }
  return Ok{};
}

Result<VendorPart> Collector::collect() {
  part_.name = "Open MPI";
  const auto mpi = system_.find(kMpi);
  if (!mpi) return make_error(ErrorCode::kNotFound, std::string(kMpi) + " was not found here");
  const auto pmix = pmix_of(*mpi);
  if (!pmix) return make_error(ErrorCode::kNotFound, std::string(kPmix) + " was not found here");
  part_.origin = mpi->path;
  HORA_TRY(add_with_needs(*mpi));
  HORA_TRY(add_with_needs(*pmix));
  HORA_TRY(add_bindings());
  // The folders are compiled into the libraries, where nothing but they themselves can read them.
  // So the usual ones are tried. A build without plug-ins (--disable-dlopen, and most of Open MPI
  // 5) has no such folder, and needs none. As it is by itself, in Debian (beside the other
  // architectures' files), and as Debian names it.
  const std::string plugins =
      first_with(folders_around(*mpi),
                 {"/openmpi", "/openmpi3", "/openmpi/lib/openmpi3", "/openmpi/lib/openmpi"}, ".so");
  const std::string texts =
      first_with(folders_around(*mpi),
                 {"/../share/openmpi", "/../../share/openmpi", "/openmpi/share/openmpi"}, ".txt");
  const std::string pmix_plugins = first_with(folders_around(*pmix), {"/pmix"}, ".so");
  const std::string pmix_texts =
      first_with(folders_around(*pmix), {"/../share/pmix", "/../../share/pmix"}, ".txt");
  if (!plugins.empty()) HORA_TRY(add_plugins(plugins, "lib/openmpi"));
  if (!texts.empty()) HORA_TRY(add_texts(texts, "share/openmpi"));
  if (!pmix_plugins.empty()) HORA_TRY(add_plugins(pmix_plugins, "lib/pmix"));
  if (!pmix_texts.empty()) HORA_TRY(add_texts(pmix_texts, "share/pmix"));
  std::sort(part_.packaged.begin(), part_.packaged.end());
  part_.packaged.erase(std::unique(part_.packaged.begin(), part_.packaged.end()),
                       part_.packaged.end());
  part_.memory_folder = hashes_.folder();
  part_.licence_folder = std::string(kRoot) + "/share/licenses";
  // Distributions configure folders that a prefix alone does not move.
  const std::string root = "@bundle@/" + std::string(kRoot);
  part_.paths = {{"LD_LIBRARY_PATH", root + "/lib"}};
  for (const auto& [prefix, folder] : {std::pair{"OPAL_", "openmpi"}, std::pair{"PMIX_", "pmix"}}) {
    const std::string begin = prefix;
    part_.paths.emplace_back(begin + "PREFIX", root);
    part_.paths.emplace_back(begin + "LIBDIR", root + "/lib");
    part_.paths.emplace_back(begin + "PKGLIBDIR", root + "/lib/" + folder);
    part_.paths.emplace_back(begin + "DATADIR", root + "/share");
    part_.paths.emplace_back(begin + "PKGDATADIR", root + "/share/" + folder);
    part_.paths.emplace_back(begin + "SYSCONFDIR", root + "/etc");
  }
  part_.hash = part_hash(part_.files);
  return std::move(part_);
}

}  // namespace

std::vector<std::string> open_mpi_sonames() { return {kMpi, kPmix}; }

Result<VendorPart> collect_open_mpi(const std::vector<std::string>& folders, KnownHashes& hashes) {
  return Collector(folders, hashes).collect();
}

}  // namespace hora::launcher
