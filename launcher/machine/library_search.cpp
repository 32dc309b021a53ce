// SPDX-License-Identifier: Apache-2.0
#include "launcher/machine/library_search.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <set>
#include <utility>

#include "rendezvous/base/text.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/files.h"

namespace hora::launcher {

// Left out of the loader's rules: the run path of the library that loaded the asking one (DT_RPATH
// is inherited), LD_PRELOAD, and folders for one kind of processor, whose files have a sibling for
// all kinds in practice.

namespace {

// Where the loaders of the common distributions look at last.
constexpr std::string_view kSystemFolders[] = {
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
#if defined(__x86_64__)
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
#elif defined(__aarch64__)
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
#endif
};

// No plug-in of any library needs that many; a circle ends at the set of names that were seen.
constexpr std::size_t kMostLibraries = 512;

// A file whose headers and names are read in many small pieces that lie side by side.
class FileBlocks {
 public:
  explicit FileBlocks(int fd) : fd_(fd) {}

  // False where the file does not have all of it.
  bool read(std::uint64_t offset, char* into, std::size_t size) {
    while (size > 0) {
      const std::string& block = at(offset / kSize);
      const std::size_t begin = static_cast<std::size_t>(offset % kSize);
      if (begin >= block.size()) return false;
      const std::size_t piece = block.copy(into, size, begin);
      into += piece;
      offset += piece;
      size -= piece;
    }
    return true;
  }

 private:
  static constexpr std::size_t kSize = 4096;
  static constexpr std::size_t kMost = 64;  // that are kept

  // Shorter at the end of the file, and empty after it.
  const std::string& at(std::uint64_t number) {
    const auto found = blocks_.find(number);
    if (found != blocks_.end()) return found->second;
    if (blocks_.size() == kMost) blocks_.clear();
    std::string block(kSize, '\0');
    const ssize_t got = number > INT64_MAX / kSize
                            ? 0
                            : ::pread(fd_, block.data(), kSize, static_cast<off_t>(number * kSize));
    block.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return blocks_[number] = std::move(block);
  }

  int fd_;
  std::map<std::uint64_t, std::string> blocks_;  // by their place in the file
};

}  // namespace

std::vector<std::string> run_path_folders(std::string_view run_path, std::string_view path) {
  std::vector<std::string> folders;
  for (const std::string_view each : split(run_path, ':')) {
    std::string folder(each);
    replace_all(folder, "${ORIGIN}", os::folder_of(path));
    replace_all(folder, "$ORIGIN", os::folder_of(path));
    if (folder.substr(0, 1) == "/" && folder.find('$') == std::string::npos) {
      folders.push_back(std::move(folder));
    }
  }
  return folders;
}

std::vector<std::string> absolute_folders(std::string_view list) {
  std::vector<std::string> folders;
  for (const std::string_view folder : split(list, ':')) {
    if (folder.substr(0, 1) == "/") folders.emplace_back(folder);
  }
  return folders;
}

// By name: the host's C library comes with the loader that starts its programs, and a second one in
// a process would be one too many.
bool is_of_glibc(std::string_view soname) {
  static constexpr std::string_view kNames[] = {
      "libc.so.",      "libm.so.",    "libdl.so.",   "librt.so.",  "libpthread.so.", "libutil.so.",
      "libresolv.so.", "libmvec.so.", "libnsl.so.1", "libanl.so.", "ld-linux"};
  return std::any_of(std::begin(kNames), std::end(kNames), [soname](std::string_view name) {
    return soname.substr(0, name.size()) == name;
  });
}

LibrarySearch::LibrarySearch(std::vector<std::string> folders, std::string root)
    : folders_(std::move(folders)), root_(std::move(root)) {}

// Most searches end before: in the folders of the program, or because a file is opened by its path.
const LoaderCache& LibrarySearch::loader_cache() const {
  if (!cache_) {
    auto bytes = os::read_file(root_ + "/etc/ld.so.cache");
    cache_.emplace(bytes ? *std::move(bytes) : "");
  }
  return *cache_;
}

// Libraries that need the same ones ask for them again and again.
std::optional<FoundLibrary> LibrarySearch::open(const std::string& path) const {
  if (const auto known = opened_.find(path); known != opened_.end()) return known->second;
  auto library = read(path);
  if (library) opened_.emplace(path, *library);
  return library;
}

std::optional<FoundLibrary> LibrarySearch::read(const std::string& path) const {
  // Without O_NONBLOCK a pipe of that name would keep the agent from greeting.
  const os::Fd file(::open((root_ + path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file.valid() || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return std::nullopt;
  }
  FileBlocks blocks(file.get());
  auto elf = parse_elf_dynamic([&blocks](std::uint64_t offset, void* into, std::size_t size) {
    return blocks.read(offset, static_cast<char*>(into), size);
  });
  if (!elf || elf->machine != own_elf_machine()) return std::nullopt;
  const std::string name = path.substr(path.rfind('/') + 1);
  return FoundLibrary{name, path, std::move(*elf)};
}

std::optional<FoundLibrary> LibrarySearch::find(const std::string& soname,
                                                const FoundLibrary* needed_by) const {
  std::vector<std::string> files;
  const auto look_in = [&](const std::vector<std::string>& folders) {
    for (const std::string& folder : folders) files.push_back(folder + "/" + soname);
  };
  if (needed_by != nullptr) look_in(run_path_folders(needed_by->elf.run_path, needed_by->path));
  look_in(folders_);
  for (std::string& file : loader_cache().files_of(soname)) files.push_back(std::move(file));
  for (const std::string_view folder : kSystemFolders) {
    files.push_back(std::string(folder) + "/" + soname);
  }
  for (const std::string& file : files) {
    if (auto found = open(file)) {
      found->soname = soname;
      return found;
    }
  }
  return std::nullopt;
}

Result<std::vector<FoundLibrary>> LibrarySearch::find_with_needs(const std::string& soname) const {
  auto first = find(soname);
  if (!first) return make_error(ErrorCode::kNotFound, soname + " was not found");
  return needs_of(std::move(*first));
}

// Breadth first, as the loader does it: the first file of a name serves all that ask for it later,
// whatever their own run paths say.
Result<std::vector<FoundLibrary>> LibrarySearch::needs_of(FoundLibrary first) const {
  std::set<std::string> seen{first.soname};
  std::vector<FoundLibrary> found{std::move(first)};
  for (std::size_t i = 0; i < found.size(); ++i) {
    // By value: the vector grows.
    const FoundLibrary needed_by = found[i];
    for (const std::string& soname : needed_by.elf.needed) {
      if (is_of_glibc(soname) || !seen.insert(soname).second) continue;
      auto library = find(soname, &needed_by);
      if (!library || found.size() >= kMostLibraries) {
        return make_error(ErrorCode::kNotFound,
                          needed_by.path + " needs " + soname + ", which was not found");
      }
      found.push_back(std::move(*library));
    }
  }
  return found;
}

// Python is not asked: starting it would take longer than everything else that an agent does before
// it greets.

namespace {

// A folder of site-packages has some thousands; nothing of interest has more.
constexpr std::size_t kMostLibraryNames = 4096;

std::vector<std::string> shown_names_in(const std::string& folder, std::string_view begin) {
  std::vector<std::string> names = os::names_in(folder);
  std::erase_if(names, [begin](const std::string& name) {
    return name.front() == '.' || !name.starts_with(begin);
  });
  names.resize(std::min(names.size(), kMostLibraryNames));
  return names;
}

void add_wheels(const std::string& packages, std::vector<std::string>& folders) {
  for (const std::string& wheel : shown_names_in(packages + "/nvidia", "")) {
    std::string folder = packages + "/nvidia/" + wheel + "/lib";
    if (os::is_folder(folder) &&
        std::find(folders.begin(), folders.end(), folder) == folders.end()) {
      folders.push_back(std::move(folder));
    }
  }
}

// `prefix`/lib/python3.11/site-packages; Debian's are dist-packages.
void add_wheels_below(const std::string& prefix, std::vector<std::string>& folders) {
  for (const char* lib : {"/lib/", "/lib64/", "/local/lib/"}) {
    for (const std::string& python : shown_names_in(prefix + lib, "python3")) {
      add_wheels(prefix + lib + python + "/site-packages", folders);
      add_wheels(prefix + lib + python + "/dist-packages", folders);
    }
  }
}

}  // namespace

std::vector<std::string> program_folders(const std::string& program) {
  if (program.substr(0, 1) != "/") return {};
  const auto file = LibrarySearch({}).open(program);
  return file ? run_path_folders(file->elf.run_path, program) : std::vector<std::string>();
}

std::vector<std::string> wheel_folders(const std::string& program) {
  std::vector<std::string> folders;
  if (program.substr(0, 1) != "/") return folders;
  const std::string prefix = os::folder_of(os::folder_of(program));
  const std::string real_prefix = os::folder_of(os::folder_of(os::real_path(program)));
  add_wheels_below(prefix, folders);
  if (real_prefix != prefix) add_wheels_below(real_prefix, folders);
  return folders;
}

std::vector<std::string> wheel_folders_in(std::string_view package_folders) {
  std::vector<std::string> folders;
  for (const std::string& packages : absolute_folders(package_folders)) {
    add_wheels(packages, folders);
  }
  return folders;
}

}  // namespace hora::launcher
