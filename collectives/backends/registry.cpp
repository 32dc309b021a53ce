// SPDX-License-Identifier: Apache-2.0
#include "collectives/backends/registry.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include "collectives/backends/mpi_launch/launched.h"

namespace hora::collectives {

// Each linked backend defines one function, at the end of its file. The generated hora_backends.inc
// lists all backends; the macros below choose what a line of it becomes.
#define HORA_LINKED_BACKEND(id) const BackendDescriptor* id##_backend_descriptor();
#define HORA_MODULE_BACKEND(id, file, called_for)
#define HORA_UNBUILT_BACKEND(id, why)
#include "hora_backends.inc"
#undef HORA_LINKED_BACKEND
#undef HORA_MODULE_BACKEND
#undef HORA_UNBUILT_BACKEND

namespace {

bool is_letter(char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

// oneCCL is for those who name it: shared memory and TCP are faster.
bool is_ccl_called_for(ErrorText& why_not) noexcept {
  for (const char* const name : {"HOROVOD_CPU_OPERATIONS", "HORA_BACKENDS"}) {
    const char* const value = std::getenv(name);
    const char* const found = value == nullptr ? nullptr : strcasestr(value, "ccl");
    // "nccl" is another one, and "-ccl" leaves it out.
    if (found != nullptr && (found == value || (!is_letter(found[-1]) && found[-1] != '-'))) {
      return true;
    }
  }
  return why_not.set("HOROVOD_CPU_OPERATIONS is not ccl");
}

#define HORA_LINKED_BACKEND(id) {#id, id##_backend_descriptor, nullptr, nullptr, nullptr},
#define HORA_MODULE_BACKEND(id, file, called_for) {#id, nullptr, file, nullptr, called_for},
#define HORA_UNBUILT_BACKEND(id, why) {#id, nullptr, nullptr, why, nullptr},
// The table has the unbuilt backends, too, so that errors can say why one is missing.
constexpr BackendRow kRows[] = {
#include "hora_backends.inc"
};

// An address inside this library, for dladdr().
int folder_anchor = 0;

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// Looks next to libhora first, then in ../lib, where it is when a program is linked statically.
std::string find_module(const std::string& file) {
  std::vector<std::string> folders;
  if (const char* path = std::getenv("HORA_MODULE_PATH")) folders.emplace_back(path);
  folders.push_back(library_folder());
  folders.push_back(library_folder() + "/../lib");
  for (const std::string& folder : folders) {
    if (exists(folder + "/" + file)) return folder + "/" + file;
  }
  return {};
}

std::string loader_error() {
  const char* text = dlerror();
  return text == nullptr ? "unknown reason" : text;
}

Result<const BackendDescriptor*> load_module(const BackendRow& row) {
  const std::string path = find_module(row.module);
  if (path.empty()) {
    return make_error(ErrorCode::kNotFound,
                      std::string(row.module) + " is not in " + library_folder() +
                          "; if horarun did not ship it, HORA_BACKENDS in the environment of "
                          "horarun can ask for " +
                          row.id);
  }
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) return make_error(ErrorCode::kUnavailable, loader_error());
  const auto entry = reinterpret_cast<BackendEntryPoint>(dlsym(module, HORA_BACKEND_ENTRY_POINT));
  ErrorText why_not;
  const BackendDescriptor* descriptor = entry == nullptr ? nullptr : entry(why_not);
  if (why_not.text[0] != '\0') return make_error(ErrorCode::kUnavailable, why_not.text);
  // border_version is the first member in every version, so it is readable whatever follows.
  if (descriptor == nullptr || descriptor->border_version != kBorderVersion) {
    return make_error(ErrorCode::kUnavailable, path + " belongs to another version of Hora");
  }
  return descriptor;
}

}  // namespace

std::span<const BackendRow> backend_rows() { return kRows; }

const BackendRow* find_backend_row(std::string_view id) {
  for (const BackendRow& row : kRows) {
    if (id == row.id) return &row;
  }
  return nullptr;
}

Result<const BackendDescriptor*> load_backend(const BackendRow& row) {
  if (row.linked != nullptr) return row.linked();
  if (row.module == nullptr) return make_error(ErrorCode::kNotFound, row.why_not_built);
  // The answers include failures: a module that could not be loaded is not tried again. The lock is
  // held while loading, since a second thread has to wait for the answer anyway.
  static std::mutex mutex;
  static std::map<std::string, Result<const BackendDescriptor*>> answers;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto known = answers.find(row.id);
  if (known != answers.end()) return known->second;
  return answers.emplace(row.id, load_module(row)).first->second;
}

Result<const LauncherBootstrap*> load_launcher_bootstrap(const BackendRow& row) {
  auto descriptor = load_backend(row);
  if (!descriptor) return std::move(descriptor).error();
  // The descriptor lies in the module, so its address leads to the module's handle.
  Dl_info info{};
  void* module =
      dladdr(*descriptor, &info) == 0 ? nullptr : dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  const auto entry = module == nullptr ? nullptr
                                       : reinterpret_cast<LauncherBootstrapEntryPoint>(
                                             dlsym(module, HORA_BOOTSTRAP_ENTRY_POINT));
  if (entry == nullptr) {
    return make_error(ErrorCode::kNotFound, std::string(row.id) + " knows no launcher");
  }
  return entry();
}

std::string library_folder() {
  Dl_info info{};
  if (dladdr(&folder_anchor, &info) == 0 || info.dli_fname == nullptr) return ".";
  std::string path = info.dli_fname;
  if (path.find('/') == std::string::npos) {  // the program itself, found by PATH
    char program[4096];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program);
    if (length > 0) path.assign(program, static_cast<std::size_t>(length));
  }
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

}  // namespace hora::collectives
