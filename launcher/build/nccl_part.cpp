// SPDX-License-Identifier: Apache-2.0
// Ranks are told the file by HORA_NCCL_LIBRARY and not by a folder in LD_LIBRARY_PATH: a framework
// that brings its own NCCL along would find ours there before it.
#include "launcher/build/nccl_part.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "launcher/build/part_hash.h"
#include "launcher/libraries/library_search.h"
#include "rendezvous/os/paths.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kFolder = "nccl";
// NCCL for all GPUs that there are has a quarter of it; something else would be wrong.
constexpr std::uint64_t kLargest = std::uint64_t{1} << 30;

bool begins_with(std::string_view text, std::string_view begin) {
  return text.substr(0, begin.size()) == begin;
}

// The first name in the order of the alphabet that begins so; empty: none does.
std::string first_name(const std::string& folder, std::string_view begin) {
  std::string first;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(folder.c_str()), ::closedir);
  if (!directory) return first;
  while (const dirent* item = ::readdir(directory.get())) {
    const std::string name = item->d_name;
    if (begins_with(name, begin) && (first.empty() || name < first)) first = name;
  }
  return first;
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
  // A wheel: site-packages/nvidia/nccl/lib beside site-packages/nvidia_nccl_cu12-2.21.5.dist-info;
  // or several of NVIDIA's wheels in one prefix.
  for (const std::string& beside : {os::folder_of(os::folder_of(prefix)), prefix + "/dist-info"}) {
    const std::string wheel = first_name(beside, "nvidia_nccl");
    if (wheel.empty()) continue;
    folders.push_back(beside + "/" + wheel);
    folders.push_back(beside + "/" + wheel + "/licenses");
  }
  if (begins_with(library, "/usr/") || begins_with(library, "/lib")) {
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
  return begins_with(soname, "libcuda.so") || begins_with(soname, "libnvidia-");
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

}  // namespace hora::launcher
