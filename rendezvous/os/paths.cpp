// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/os/paths.h"

#include <sys/stat.h>

#include <cstdlib>
#include <memory>

namespace hora::os {

std::string folder_of(std::string_view path) {
  return std::string(path.substr(0, path.rfind('/')));
}

// Without a buffer of the caller's, realpath() has no limit of length.
std::string real_path(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> real(::realpath(path.c_str(), nullptr), std::free);
  return real ? real.get() : path;
}

bool is_folder(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace hora::os
