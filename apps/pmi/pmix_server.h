// SPDX-License-Identifier: Apache-2.0
// The PMIx server library of this host, set up for one job. The one file that includes its headers
// is pmix_library.h; there is one server in a process, as the library's callbacks have no place for
// a second one.
#pragma once

#include <optional>

#include "apps/pmi/exchange.h"
#include "launcher/protocol/messages.h"

namespace hora::pmi {

// `exchange`: where the job has other hosts. What each rank of this host needs in its environment,
// or why there is no server.
launcher::PmiReply start_pmix_server(const launcher::PmiJob& job, std::optional<Exchange> exchange);
// Ends it; what ranks have registered to be removed is removed. To be called once, then the process
// ends.
void stop_pmix_server();

}  // namespace hora::pmi
