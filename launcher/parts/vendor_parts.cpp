// SPDX-License-Identifier: Apache-2.0
#include "launcher/parts/vendor_parts.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_set>

#include "launcher/machine/library_search.h"
#include "launcher/parts/hashes.h"
#include "launcher/parts/vendor_search.h"
#include "launcher/text/text.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/files.h"

namespace hora::launcher {

// Neither package manager is an error to lack: a machine has one at most, and software that was
// built by hand belongs to none.

namespace {

constexpr std::string_view kDpkgLists = "/var/lib/dpkg/info";
// Half of the silence that agents tolerate: hosts are connected while a part is packed.
constexpr std::chrono::seconds kLimit{5};

bool is_file(const std::string& path) { return ::access(path.c_str(), R_OK) == 0; }

// From dpkg's own lists, each of a package, "libz1:amd64.list". dpkg-query reads the same, but on a
// busy machine a process may wait for its turn longer than hosts tolerate. Where /lib leads to
// /usr/lib, packages may name either.
std::set<std::string> owners_by_dpkg(const std::vector<std::string>& files) {
  constexpr std::string_view kUsr = "/usr";
  constexpr std::string_view kEnding = ".list";
  std::vector<std::string> either = files;
  for (const std::string& file : files) {
    const bool below_usr = file.substr(0, kUsr.size() + 1) == "/usr/";
    either.push_back(below_usr ? file.substr(kUsr.size()) : std::string(kUsr) + file);
  }
  const std::unordered_set<std::string_view> wanted(either.begin(), either.end());
  std::set<std::string> packages;
  for (const std::string& name : os::names_in(std::string(kDpkgLists))) {
    if (name.size() <= kEnding.size() || name.substr(name.size() - kEnding.size()) != kEnding) {
      continue;
    }
    const auto list = os::read_file(std::string(kDpkgLists) + "/" + name);
    if (!list) continue;
    const auto lines = split(*list, '\n');
    if (std::any_of(lines.begin(), lines.end(),
                    [&wanted](std::string_view line) { return wanted.count(line) > 0; })) {
      packages.insert(name.substr(0, std::min(name.find(':'), name.size() - kEnding.size())));
    }
  }
  return packages;
}

// One line for each file in the order asked, for files of one package as many times.
std::set<std::string> owners_by_rpm(const std::vector<std::string>& files) {
  std::vector<std::string> words{"rpm", "-q", "--queryformat", "%{NAME}\\n", "-f"};
  words.insert(words.end(), files.begin(), files.end());
  std::set<std::string> packages;
  const auto answer = run_isolated_program(words, kLimit);
  if (!answer) return packages;
  for (const std::string_view line : split(*answer, '\n')) {
    // "file X is not owned by any package"
    if (!line.empty() && line.find(' ') == std::string_view::npos) packages.emplace(line);
  }
  return packages;
}

void add_folder(const std::string& package, const std::string& folder,
                std::vector<LicenceFile>& found) {
  for (const std::string& name : os::names_in(folder))
    found.push_back({package, folder + "/" + name});
}

}  // namespace

std::vector<LicenceFile> find_licence_files(const std::vector<std::string>& files) {
  std::vector<LicenceFile> found;
  if (files.empty()) return found;
  for (const std::string& package : owners_by_dpkg(files)) {
    const std::string path = "/usr/share/doc/" + package + "/copyright";
    if (is_file(path)) found.push_back({package, path});
  }
  // Debian can have rpm installed as well, to convert packages; it owns no file there.
  if (!found.empty()) return found;
  for (const std::string& package : owners_by_rpm(files)) {
    add_folder(package, "/usr/share/licenses/" + package, found);
  }
  return found;
}

// Next to the files that they are about, where a reader of these on a host looks for them.
Result<std::vector<PartFile>> licence_parts(const std::vector<std::string>& files,
                                            const std::string& folder) {
  std::vector<PartFile> parts;
  std::set<std::string> paths;
  for (const LicenceFile& licence : find_licence_files(files)) {
    const std::string name = licence.path.substr(licence.path.rfind('/') + 1);
    const std::string path = folder + "/" + licence.package + "/" + name;
    if (!paths.insert(path).second) continue;
    const auto text = os::read_file(licence.path);
    if (!text) return Error(text.error());
    parts.push_back({{path, text->size(), 0644, {}}, sha256_hex(*text), licence.path});
  }
  return parts;
}

// HORA_NCCL_LIBRARY names the file to ranks, not a folder in LD_LIBRARY_PATH: a framework that
// brings its own NCCL along would find ours there before it.

namespace {

constexpr std::string_view kFolder = "nccl";
// NCCL for all GPUs that there are has a quarter of it; something else would be wrong.
constexpr std::uint64_t kLargest = std::uint64_t{1} << 30;

// The first name in the order of the alphabet that begins so; empty: none does.
std::string first_name(const std::string& folder, std::string_view begin) {
  const std::vector<std::string> names = os::names_in(folder);
  const auto first = std::find_if(names.begin(), names.end(),
                                  [begin](const auto& name) { return name.starts_with(begin); });
  return first == names.end() ? "" : *first;
}

// A licence's text in that folder, by the names that NVIDIA and distributions give it.
std::string licence_in(const std::string& folder) {
  for (const std::string_view begin : {"LICENSE", "License", "LICENCE", "copyright"}) {
    const std::string name = first_name(folder, begin);
    std::string path = folder + "/" + name;
    struct stat info {};
    if (!name.empty() && ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
        ::access(path.c_str(), R_OK) == 0) {
      return path;
    }
  }
  return {};
}

// Known places instead of a question to the package manager: it takes 0.1 s, at every launch.
std::string licence_of(const std::string& library) {
  const std::string prefix = os::folder_of(os::folder_of(library));  // of .../lib/libnccl.so.2
  std::vector<std::string> folders;
  // A wheel: site-packages/nvidia/nccl/lib next to site-packages/nvidia_nccl_cu12-2.21.5.dist-info;
  // or several of NVIDIA's wheels in one prefix.
  for (const std::string& folder : {os::folder_of(os::folder_of(prefix)), prefix + "/dist-info"}) {
    const std::string wheel = first_name(folder, "nvidia_nccl");
    if (wheel.empty()) continue;
    folders.push_back(folder + "/" + wheel);
    folders.push_back(folder + "/" + wheel + "/licenses");
  }
  if (library.starts_with("/usr/") || library.starts_with("/lib")) {
    for (const char* folder : {"/usr/share/doc/libnccl2", "/usr/share/licenses/libnccl",
                               "/usr/share/licenses/nccl", "/usr/share/doc/nccl"}) {
      folders.emplace_back(folder);
    }
  } else {
    folders.push_back(prefix);  // NVIDIA's archive, unpacked
  }
  for (const std::string& folder : folders) {
    if (auto path = licence_in(folder); !path.empty()) return path;
  }
  return {};
}

bool is_of_the_driver(std::string_view soname) {
  return soname.starts_with("libcuda.so") || soname.starts_with("libnvidia-");
}

Status add(VendorPart& part, KnownHashes& hashes, const std::string& source,
           const std::string& path) {
  const auto hash = hashes.of(source);
  if (!hash) return Error(hash.error());
  part.files.push_back(
      {{std::string(kFolder) + "/" + path, hash->size_bytes, 0644, {}}, hash->sha256, source});
  return Ok{};
}

}  // namespace

Result<FoundNccl> find_nccl(const std::vector<std::string>& folders) {
  const auto library = LibrarySearch(folders).find(kNcclSoname);
  if (!library) {
    return make_error(ErrorCode::kNotFound, std::string(kNcclSoname) + " was not found here");
  }
  FoundNccl found;
  found.path = library->path;
  found.least_glibc = library->elf.least_glibc;
  for (const std::string& soname : library->elf.needed) {
    if (!is_of_glibc(soname) && !is_of_the_driver(soname)) found.needs.push_back(soname);
  }
  struct stat info {};
  if (::stat(found.path.c_str(), &info) != 0) return errno_error(errno, found.path);
  found.size_bytes = static_cast<std::uint64_t>(info.st_size);
  if (found.size_bytes > kLargest) {
    return make_error(ErrorCode::kFailed,
                      found.path + " has " + std::to_string(found.size_bytes >> 20) +
                          " MiB; at most " + std::to_string(kLargest >> 20) + " MiB are sent");
  }
  found.licence = licence_of(os::real_path(found.path));
  if (found.licence.empty()) {
    return make_error(ErrorCode::kNotFound, "no text of a licence was found for " + found.path +
                                                ", without which it may not be passed on");
  }
  return found;
}

Result<VendorPart> collect_nccl(const FoundNccl& found, KnownHashes& hashes) {
  VendorPart part;
  part.name = "NCCL";
  part.origin = found.path;
  part.least_glibc = found.least_glibc;
  part.needs = found.needs;
  part.memory_folder = hashes.folder();
  const std::string library = std::string("lib/") + kNcclSoname;
  HORA_TRY(add(part, hashes, found.path, library));
  HORA_TRY(add(part, hashes, found.licence,
               "share/licenses/nccl/" + found.licence.substr(found.licence.rfind('/') + 1)));
  part.paths = {{"HORA_NCCL_LIBRARY", "@bundle@/" + std::string(kFolder) + "/" + library}};
  part.hash = part_hash(part.files);
  return part;
}

// Open MPI finds its plug-ins and help texts by OPAL_PREFIX and its kind, PMIx by PMIX_PREFIX; so
// the files can lie where the bundle does. Plug-ins for one network's or one batch system's own
// libraries are not sent: such libraries must match the host's drivers, and TCP and shared memory
// need none of them.

namespace {

constexpr const char* kMpi = "libmpi.so.40";
constexpr const char* kPmix = "libpmix.so.2";
constexpr std::string_view kRoot = "openmpi";

// A plug-in that needs one of these is not sent; the last is of OpenSHMEM.
constexpr std::string_view kOfTheSite[] = {
    "libfabric.", "libucp.", "libucs.",   "libuct.",      "libucm.",  "libibverbs.",
    "librdmacm.", "libpsm",  "libcuda",   "libnvidia-",   "libhsa-",  "libamdhip",
    "libportals", "libmxm.", "libhcoll.", "libsharp",     "libpbs.",  "libtorque.",
    "libbat.",    "liblsf.", "libslurm",  "liblustreapi", "libpvfs2", "liboshmem."};
// Libraries of the compiler: the host's must win when it is newer.
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
std::vector<std::string> names_in(const std::string& folder, std::string_view end) {
  std::vector<std::string> names = os::names_in(folder);
  std::erase_if(names, [end](const std::string& name) { return !name.ends_with(end); });
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

// Follows what the loader, Open MPI and PMIx would open, and adds each file once. Hosts know each
// library by its soname: programs ask for that, and the file's version would be one more name for
// the same.
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
  // The remembered hash is compared when it is packed: an upgrade in between would otherwise leave
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

// The newest glibc of all files: a plug-in that does not load is not an error to Open MPI, but then
// a rank would have another set of them than its peers.
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
  // The folders are compiled into the libraries, where only they themselves can read them. So the
  // usual ones are tried. A build without plug-ins (--disable-dlopen, and most of Open MPI 5) has
  // no such folder, and needs none. First as it is by itself, then as in Debian (with the other
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
