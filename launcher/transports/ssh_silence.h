// SPDX-License-Identifier: Apache-2.0
// The messages for an ssh server that keeps us waiting beyond a limit, by what it was to do. They
// leave out the host, which is the subject of the failure.  [pure]
// `waited` is the limit as text: "10 s".
#pragma once

#include <string>

#include "launcher/protocol/messages.h"

namespace hora::launcher {

Failure resolver_silence(const std::string& name);
// `addresses`: those that were tried.
Failure connect_silence(const std::string& addresses, const std::string& waited);
Failure banner_silence(const std::string& waited);
Failure key_exchange_silence(const std::string& waited, const std::string& address);
Failure login_silence(const std::string& waited);
Failure shell_silence();
Failure queue_silence();

// It was refused this many times. `words` are the last message of the server (or the proxy
// command); a proxy that keeps ending without a message looks like a busy server: both give an
// empty banner.
Failure busy_refusal(int refusals, const std::string& words, bool by_proxy);

}  // namespace hora::launcher
