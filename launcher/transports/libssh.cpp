// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/libssh.h"

#include <dlfcn.h>

#include <atomic>
#include <mutex>
#include <string>

#include "rendezvous/base/machine.h"
#include "rendezvous/os/files.h"

// Where the module is linked into the program: tests that are libssh's server, too.
extern "C" __attribute__((weak)) const hora::launcher::LibsshModule* hora_libssh_module_entry();

namespace hora::launcher {

namespace {

std::atomic<const LibsshModule*> loaded{nullptr};

// Next to what horarun ships: ../share/hora, from the program's real path.
Result<std::string> module_path() {
  const auto folder = os::program_folder();
  if (!folder) return folder.error();
  return *folder + "/../share/hora/" + std::string(own_machine()) + "/launcher/libhora_ssh.so";
}

// The version of the header that both were compiled with identifies a module of another build.
Result<const LibsshModule*> load() {
  if (hora_libssh_module_entry != nullptr) return hora_libssh_module_entry();
  const auto path = module_path();
  if (!path) return path.error();
  // RTLD_LOCAL: the OpenSSL of the rendezvous (libhora_tls.so) is another one. RTLD_NODELETE:
  // OpenSSL registers handlers that run at the end of the process.
  void* library = ::dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return make_error(ErrorCode::kNotFound, "this installation has no ssh (" +
                                                (why == nullptr ? *path : std::string(why)) +
                                                "); build the target 'hora_ssh' or install again");
  }
  const auto entry = reinterpret_cast<LibsshEntryPoint>(::dlsym(library, HORA_LIBSSH_ENTRY_POINT));
  const LibsshModule* module = entry == nullptr ? nullptr : entry();
  if (module == nullptr || module->header_version != LIBSSH_VERSION_INT) {
    return make_error(ErrorCode::kFailed, *path + " belongs to another version of Hora");
  }
  return module;
}

}  // namespace

// The first host decides whether there is an ssh here at all, before any connection is begun; what
// calls libssh afterwards relies on it.
Status prepare_libssh() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (loaded != nullptr) return Ok{};
  const auto module = load();
  if (!module) return module.error();
  if (const char* why = (*module)->prepare(); why != nullptr) {
    return make_error(ErrorCode::kFailed, why);
  }
  loaded = *module;
  return Ok{};
}

const LibsshModule& libssh() { return *loaded.load(std::memory_order_acquire); }

}  // namespace hora::launcher
