// SPDX-License-Identifier: Apache-2.0
// Neither package manager is an error to lack: a machine has one at most, and software that was
// built by hand belongs to none.
#include "launcher/build/licence_files.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <string_view>
#include <unordered_set>

#include "launcher/build/isolated.h"
#include "launcher/build/sha256.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/read_file.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kDpkgLists = "/var/lib/dpkg/info";
// Half of what agents bear of silence: hosts are connected while a part is packed.
constexpr std::chrono::seconds kLimit{5};

bool is_file(const std::string& path) { return ::access(path.c_str(), R_OK) == 0; }

// Sorted; none where there is no such folder.
std::vector<std::string> names_in(std::string_view folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(std::string(folder).c_str()),
                                                      ::closedir);
  if (!directory) return names;
  while (const dirent* item = ::readdir(directory.get())) {
    if (item->d_name[0] != '.') names.emplace_back(item->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// From dpkg's own lists, each of a package, "libz1:amd64.list". dpkg-query reads the same, but on a
// busy machine a process may wait longer for its turn than hosts bear. Where /lib leads to
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
  for (const std::string& name : names_in(kDpkgLists)) {
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
  for (const std::string& name : names_in(folder)) found.push_back({package, folder + "/" + name});
}

}  // namespace

std::vector<LicenceFile> find_licence_files(const std::vector<std::string>& files) {
  std::vector<LicenceFile> found;
  if (files.empty()) return found;
  for (const std::string& package : owners_by_dpkg(files)) {
    const std::string path = "/usr/share/doc/" + package + "/copyright";
    if (is_file(path)) found.push_back({package, path});
  }
  // Debian can have rpm installed beside dpkg, to convert packages; it owns no file there.
  if (!found.empty()) return found;
  for (const std::string& package : owners_by_rpm(files)) {
    add_folder(package, "/usr/share/licenses/" + package, found);
  }
  return found;
}

// Beside the files that they are about, where whoever finds these on a host looks for them.
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

}  // namespace hora::launcher
