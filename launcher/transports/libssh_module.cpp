// SPDX-License-Identifier: Apache-2.0
// libhora_ssh.so.
#include "launcher/transports/libssh.h"

// Only OpenSSL 3 has this function; the weak reference is null where libssh uses another library.
// NOLINTNEXTLINE(readability-identifier-naming): OpenSSL's name
extern "C" __attribute__((weak)) struct ossl_lib_ctx_st* OSSL_LIB_CTX_get0_global_default(void);

namespace hora::launcher {

namespace {

const char* prepare() {
  if (::ssh_init() != SSH_OK) return "libssh cannot be initialised";
  // OpenSSL crashes at its first use if the allocation of its global context fails, so make it
  // allocate now, while the failure can still be reported.
  if (OSSL_LIB_CTX_get0_global_default != nullptr &&
      OSSL_LIB_CTX_get0_global_default() == nullptr) {
    return "OpenSSL cannot be initialised: no memory";
  }
  return nullptr;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
constexpr LibsshModule kModule{libssh_border(), prepare,
#define HORA_LIBSSH_FUNCTION(name) &::name,
                               HORA_LIBSSH_FUNCTIONS(HORA_LIBSSH_FUNCTION)
#undef HORA_LIBSSH_FUNCTION
};
#pragma GCC diagnostic pop

}  // namespace

}  // namespace hora::launcher

extern "C" __attribute__((visibility("default"))) const hora::launcher::LibsshModule*
hora_libssh_module_entry() {
  return &hora::launcher::kModule;
}
