// SPDX-License-Identifier: Apache-2.0
// Looks for vendor libraries as the runtime does, and asks each one for its version through its own
// function.
#include "launcher/build/vendor_library.h"

#include <dlfcn.h>
#include <link.h>

#include <array>

#include "rendezvous/os/paths.h"

namespace hora::launcher {

namespace {

// NCCL and CUDA report one number: 22809 is 2.28.9, 13000 is 13.0.
std::string nccl_version(void* function) {
  int number = 0;
  if (reinterpret_cast<int (*)(int*)>(function)(&number) != 0) return {};
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." +
         std::to_string(number % 100);
}

std::string cuda_version(void* function) {
  int number = 0;
  if (reinterpret_cast<int (*)(int*)>(function)(&number) != 0) return {};
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

// Parses "Open MPI v4.1.4, package: ..."; MPI allows this call before MPI_Init.
std::string mpi_version(void* function) {
  // Large enough for MPI_MAX_LIBRARY_VERSION_STRING of every implementation.
  std::array<char, 8192> text{};
  int length = 0;
  if (reinterpret_cast<int (*)(char*, int*)>(function)(text.data(), &length) != 0) return {};
  const std::string all = text.data();
  return all.substr(0, all.find_first_of(",\n"));
}

// Parses "OpenPMIx 4.2.2rc2 (...)".
std::string pmix_version(void* function) {
  const char* text = reinterpret_cast<const char* (*)()>(function)();
  const std::string all = text == nullptr ? "" : text;
  const auto end = all.find_first_of(",(");
  std::string out = all.substr(0, end);
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

// Parses "0.10.6/openssl/zlib".
std::string ssh_version(void* function) {
  const char* text = reinterpret_cast<const char* (*)(int)>(function)(0);
  const std::string all = text == nullptr ? "" : text;
  return all.substr(0, all.find('/'));
}

struct Recipe {
  std::string_view feature;
  std::vector<const char*> names;
  const char* version_symbol;
  std::string (*version)(void* function);
};

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all = {
      {"SSH", {"libssh.so.4"}, "ssh_version", ssh_version},
      {"GLOO", {"libgloo.so.0", "libgloo.so"}, nullptr, nullptr},
      {"MPI",
       {"libmpi.so.40", "libmpi.so.12", "libmpi.so"},
       "MPI_Get_library_version",
       mpi_version},
      {"CUDA", {"libcuda.so.1"}, "cuDriverGetVersion", cuda_version},
      {"NCCL", {"libnccl.so.2", "libnccl.so"}, "ncclGetVersion", nccl_version},
      {"PMIX", {"libpmix.so.2"}, "PMIx_Get_version", pmix_version},
  };
  return all;
}

// dlopen() searches several places; the link map tells which file it found.
std::string file_of(void* library) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return {};
  return os::real_path(map->l_name);
}

// The bundle comes first, then the system, then where the build found it.
std::vector<std::string> places(const Recipe& recipe, const std::vector<std::string>& folders,
                                const std::string& built_location) {
  std::vector<std::string> out;
  for (const std::string& folder : folders) {
    for (const char* name : recipe.names) out.push_back(folder + "/" + name);
  }
  for (const char* name : recipe.names) out.emplace_back(name);
  if (built_location.find(".so") != std::string::npos) out.push_back(built_location);
  return out;
}

}  // namespace

VendorLibrary find_vendor_library(std::string_view feature, const std::vector<std::string>& folders,
                                  const std::string& built_location) {
  VendorLibrary found;
  for (const Recipe& recipe : recipes()) {
    if (recipe.feature != feature) continue;
    for (const std::string& place : places(recipe, folders, built_location)) {
      void* library = dlopen(place.c_str(), RTLD_LAZY | RTLD_LOCAL);
      if (library == nullptr) {
        const char* text = dlerror();
        found.error = text == nullptr ? "unknown reason" : text;
        continue;
      }
      found.path = file_of(library);
      found.error.clear();
      void* symbol = recipe.version_symbol ? dlsym(library, recipe.version_symbol) : nullptr;
      if (symbol != nullptr) found.version = recipe.version(symbol);
      return found;
    }
  }
  return found;
}

}  // namespace hora::launcher
