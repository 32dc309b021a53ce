// SPDX-License-Identifier: Apache-2.0
// Neither program is an error to lack: a machine has one package manager at most, and software that
// was built by hand belongs to none.
#include "launcher/build/licence_files.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <string_view>

#include "launcher/build/isolated.h"
#include "launcher/build/sha256.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/read_file.h"

namespace hora::launcher {

namespace {

// Half of what agents bear of silence: hosts are connected while a part is packed.
constexpr std::chrono::seconds kLimit{5};

bool is_file(const std::string& path) { return ::access(path.c_str(), R_OK) == 0; }

// "libz1:amd64, other: /usr/lib/libz.so.1" for each file that it knows. Where /lib leads to
// /usr/lib, packages may name either.
std::set<std::string> owners_by_dpkg(const std::vector<std::string>& files) {
  constexpr std::string_view kUsr = "/usr";
  std::vector<std::string> words{"dpkg-query", "--search"};
  for (const std::string& file : files) {
    words.push_back(file);
    const bool below_usr = file.substr(0, kUsr.size() + 1) == "/usr/";
    words.push_back(below_usr ? file.substr(kUsr.size()) : std::string(kUsr) + file);
  }
  std::set<std::string> packages;
  const auto answer = run_isolated_program(words, kLimit);
  if (!answer) return packages;
  for (const std::string_view line : split(*answer, '\n')) {
    const std::string_view package = line.substr(0, line.find_first_of(":,"));
    if (!package.empty() && package.find_first_of(" /") == std::string_view::npos) {
      packages.emplace(package);
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
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(folder.c_str()), ::closedir);
  if (!directory) return;
  std::vector<std::string> names;
  while (const dirent* item = ::readdir(directory.get())) {
    if (item->d_name[0] != '.') names.emplace_back(item->d_name);
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) found.push_back({package, folder + "/" + name});
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
