// SPDX-License-Identifier: Apache-2.0
// The key-value server as a program of its own: `horarun rendezvous`.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/address.h"
#include "rendezvous/base/result.h"
#include "rendezvous/contract/store_keys.h"
#include "rendezvous/kv_server.h"
#include "rendezvous/kv_service.h"

namespace hora::rendezvous {

struct ServeOptions {
  KvServerOptions server;  // .addresses; empty: 127.0.0.1 and a free port
  AccessPolicy access;     // with neither token nor address: whoever is on this machine
  KvLimits limits;
  std::vector<ScopeSize> known_scopes;
  std::optional<pid_t> end_with;  // a process whose end is ours
  // Told the addresses once connections are taken. Empty: one line on stdout for each address,
  // "rendezvous: listening on 10.0.0.1:4000".
  std::function<void(const std::vector<Endpoint>&)> announce;
};

// Serves until SIGINT, SIGTERM or the end of `end_with`, and then returns Ok. Both signals must not
// be handled by another part of the process meanwhile; they are blocked in the calling thread and
// unblocked on return.
Status serve_rendezvous(ServeOptions options);

// The first line of a file, without blanks at its ends: what --token-file names. A file that others
// may read is accepted, an empty one is not.
Result<std::string> read_token_file(const std::string& path);

}  // namespace hora::rendezvous
