// SPDX-License-Identifier: Apache-2.0
// TLS for the job's rendezvous. The launcher makes a key and a certificate for the job, in its
// memory. The ranks receive the certificate's fingerprint together with their environment and talk
// to no other server. libhora_tls.so (rendezvous/tls/module.h), which the first call loads, does
// the cryptography. Any thread may call; the library stays loaded.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/net/stream.h"

namespace hora::tls {

struct ServerSide {
  net::AcceptStream accept;
  std::string fingerprint;  // SHA-256 of the certificate, as 64 hexadecimal digits
};
// `name` appears in the certificate, for people who look. kNotFound: this installation has no
// libhora_tls.so. Processes with the same `seed`, 32 secret bytes, and name make the same side, so
// that each knows its fingerprint; empty: a new one.
Result<ServerSide> make_server_side(const std::string& name, std::string_view seed = {});

// Talks only to the server with this certificate. An empty text gives an empty function: no TLS. An
// error in the text or the installation appears when a connection is made.
net::ConnectStream pinned(std::string_view fingerprint);

struct Library {
  std::string path;
  std::string version;  // of OpenSSL
};
// For callers that want to know whether TLS is available.
Result<Library> load();

}  // namespace hora::tls
