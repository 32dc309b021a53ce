// SPDX-License-Identifier: Apache-2.0
// A PMIx server over the PMIx library that is found at run time.
#pragma once

#include <pmix.h>
#include <pmix_server.h>

#include <optional>

#include "apps/pmi/job_exchange.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"

namespace hora::pmi {

// The site's PMIx library, opened at run time: hora-pmix starts on every host and can say what is
// missing. Only functions that every libpmix.so.2 from PMIx 4 on has, and none of the headers'
// macros: these call functions that differ between the versions.

// The functions' names as the library exports them.
// clang-format off
#define HORA_PMIX_FUNCTIONS(X)                                                       \
  X(PMIx_Error_string) X(PMIx_generate_regex) X(PMIx_generate_ppn)                   \
  X(PMIx_server_init) X(PMIx_server_finalize)                                        \
  X(PMIx_server_register_nspace) X(PMIx_server_deregister_nspace)                    \
  X(PMIx_server_register_client) X(PMIx_server_deregister_client)                    \
  X(PMIx_server_setup_fork) X(PMIx_server_dmodex_request)
// clang-format on

// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration.
#define HORA_MEMBER(name) decltype(&::name) name = nullptr;
struct PmixLibrary {
  HORA_PMIX_FUNCTIONS(HORA_MEMBER)
  // PMIx_Value_load, which PMIx 4.0 has under another name.
  void (*load_value)(pmix_value_t* value, const void* data, pmix_data_type_t type) = nullptr;
};
#undef HORA_MEMBER

// Stays open as long as the process lives. The error is the loader's, with the library's name.
Result<PmixLibrary> open_pmix_library();

// The PMIx server library of this host, set up for one job. The one file that includes its headers
// is pmix_library.h; there is one server in a process, as the library's callbacks have no place for
// a second one.

// `exchange`: if the job has other hosts. Returns the environment that each rank of this host
// needs, or why there is no server.
launcher::PmiReply start_pmix_server(const launcher::PmiJob& job, std::optional<Exchange> exchange);
// Ends it; what ranks have registered to be removed is removed. To be called once, then the process
// ends.
void stop_pmix_server();

}  // namespace hora::pmi
