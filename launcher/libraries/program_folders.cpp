// SPDX-License-Identifier: Apache-2.0
// Python is not asked: starting it would take longer than everything else that an agent does before
// it greets.
#include "launcher/libraries/program_folders.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <memory>

#include "launcher/libraries/library_search.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/paths.h"

namespace hora::launcher {

namespace {

// A folder of site-packages has some thousands; nothing of interest has more.
constexpr std::size_t kMostNames = 4096;

// Sorted; empty where there is no such folder.
std::vector<std::string> names_in(const std::string& folder, std::string_view begin) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(folder.c_str()), ::closedir);
  if (!directory) return names;
  while (const dirent* item = ::readdir(directory.get())) {
    const std::string_view name = item->d_name;
    if (name.front() == '.' || name.substr(0, begin.size()) != begin) continue;
    if (names.size() < kMostNames) names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void add_wheels(const std::string& packages, std::vector<std::string>& folders) {
  for (const std::string& wheel : names_in(packages + "/nvidia", "")) {
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
    for (const std::string& python : names_in(prefix + lib, "python3")) {
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
