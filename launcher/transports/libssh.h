// SPDX-License-Identifier: Apache-2.0
// libssh, which is loaded on demand.
#pragma once

#include "launcher/transports/libssh_module.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// Before the first call of libssh(); cheap to call again. Thread-safe.
Status prepare_libssh();

// libssh's functions: libssh().ssh_new(). Only where prepare_libssh() has succeeded.
const LibsshModule& libssh();

}  // namespace hora::launcher
