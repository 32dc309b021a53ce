// SPDX-License-Identifier: Apache-2.0
#include "apps/pmi/pmix_library.h"

#include <dlfcn.h>

#include <string>

namespace hora::pmi {

namespace {

constexpr const char* kFile = "libpmix.so.2";

Error failed(const char* what) {
  const char* const text = ::dlerror();
  return make_error(ErrorCode::kUnavailable, text == nullptr ? what : text);
}

}  // namespace

Result<PmixLibrary> open_pmix_library() {
  // RTLD_GLOBAL: the plug-ins of some builds rely on the symbols of the library that loads them.
  void* const library = ::dlopen(kFile, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) return failed(kFile);
  PmixLibrary out;
#define HORA_FIND(name)                                                     \
  out.name = reinterpret_cast<decltype(out.name)>(::dlsym(library, #name)); \
  if (out.name == nullptr) return failed(#name);
  HORA_PMIX_FUNCTIONS(HORA_FIND)
#undef HORA_FIND
  for (const char* const name : {"PMIx_Value_load", "pmix_value_load"}) {
    if (out.load_value != nullptr) break;
    out.load_value = reinterpret_cast<decltype(out.load_value)>(::dlsym(library, name));
  }
  if (out.load_value == nullptr) return failed("PMIx_Value_load");
  return out;
}

}  // namespace hora::pmi
