// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/c_library.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "rendezvous/os/fd.h"

namespace hora::launcher {

namespace {

// Where every glibc of this architecture has its loader: the path is a part of the ABI.
#if defined(__x86_64__)
constexpr const char* kLoader = "/lib64/ld-linux-x86-64.so.2";
constexpr const char* kMuslLoader = "/lib/ld-musl-x86_64.so.1";
#elif defined(__aarch64__)
constexpr const char* kLoader = "/lib/ld-linux-aarch64.so.1";
constexpr const char* kMuslLoader = "/lib/ld-musl-aarch64.so.1";
#else
#error "where does glibc have its loader on this architecture?"
#endif

// Against damaged files; a real libc.so.6 has about 70 sections and 30 KiB of names.
constexpr std::size_t kMostSections = 4096;
constexpr std::size_t kMostNames = 1 << 20;

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

bool read_at(const os::Fd& file, std::uint64_t offset, void* into, std::size_t size) {
  return offset <= INT64_MAX &&
         ::pread(file.get(), into, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
}

// glibc defines a version for each release that brought a symbol, and nearly each did. 0: none.
int newest_release(std::string_view names) {
  constexpr std::string_view kPrefix = "GLIBC_2.";
  int newest = 0;
  for (std::size_t at = names.find(kPrefix); at != std::string_view::npos;
       at = names.find(kPrefix, at + 1)) {
    int release = 0;
    for (std::size_t i = at + kPrefix.size();
         i < names.size() && names[i] >= '0' && names[i] <= '9' && release < 1000; ++i) {
      release = release * 10 + (names[i] - '0');
    }
    newest = std::max(newest, release);
  }
  return newest;
}

// By pieces: the names are larger than all else that the agent reads, and need no memory of their
// own.
int newest_release_in(const os::Fd& file, std::uint64_t offset, std::uint64_t size) {
  constexpr std::size_t kLongest = 32;  // of a version's name, at the end of a piece
  std::array<char, 4096> piece;
  int newest = 0;
  for (std::uint64_t done = 0; done < size;) {
    const auto count = std::min<std::uint64_t>(size - done, piece.size());
    if (!read_at(file, offset + done, piece.data(), count)) return 0;
    newest = std::max(newest, newest_release({piece.data(), count}));
    if (count < piece.size()) break;
    done += count - kLongest;
  }
  return newest;
}

// By the names of the versions that a library defines, which lie among those of its symbols.
int newest_release_of(const std::string& path) {
  const os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  Elf64_Ehdr header{};
  if (!file.valid() || !read_at(file, 0, &header, sizeof header) ||
      header.e_shnum > kMostSections) {
    return 0;
  }
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  if (!read_at(file, header.e_shoff, sections.data(), sections.size() * sizeof(Elf64_Shdr))) {
    return 0;
  }
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_GNU_verdef || section.sh_link >= sections.size()) continue;
    const Elf64_Shdr& names = sections[section.sh_link];
    return newest_release_in(file, names.sh_offset,
                             std::min<std::uint64_t>(names.sh_size, kMostNames));
  }
  return 0;
}

}  // namespace

std::string c_library(const std::string& root) {
  const std::string loader = root + kLoader;
  if (!exists(loader)) {
    if (exists(root + kMuslLoader)) return "musl";
    // These distributions have a glibc of their own in each program's dependencies.
    return exists(root + "/nix/store") || exists(root + "/gnu/store") ? "" : "none";
  }
  // libc.so.6 lies beside the loader that this link leads to, or where distributions have it.
  std::vector<std::string> folders{root + "/lib64", root + "/lib/x86_64-linux-gnu",
                                   root + "/lib/aarch64-linux-gnu", root + "/usr/lib64",
                                   root + "/usr/lib"};
  char real[PATH_MAX];
  if (::realpath(loader.c_str(), real) != nullptr) {
    const std::string_view path(real);
    folders.insert(folders.begin(), std::string(path.substr(0, path.rfind('/'))));
  }
  for (const std::string& folder : folders) {
    const int release = newest_release_of(folder + "/libc.so.6");
    if (release > 0) return "glibc 2." + std::to_string(release);
  }
  return {};
}

}  // namespace hora::launcher
