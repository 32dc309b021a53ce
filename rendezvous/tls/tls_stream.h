// TLS for the job's rendezvous: the launcher makes a key and a certificate for the job, in its
// memory; the ranks are told the certificate's fingerprint by the way that brings them their
// environment, and talk to nobody else. The cryptography is libhora_tls.so's
// (rendezvous/tls/module.h), which the first call loads.
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
// `name` is in the certificate, for those who look. kNotFound: this installation has no
// libhora_tls.so.
Result<ServerSide> make_server_side(const std::string& name);

// Talks only to the server with this certificate. An empty text gives an empty function: no TLS.
// What is wrong with the text, or missing from the installation, is said when a connection is made.
net::ConnectStream pinned(std::string_view fingerprint);

struct Library {
  std::string path;
  std::string version;  // of OpenSSL
};
// For who wants to know whether it could be used.
Result<Library> load();

}  // namespace hora::tls
