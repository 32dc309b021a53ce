// SPDX-License-Identifier: Apache-2.0
// The border between Hora and libhora_tls.so, the one module that uses OpenSSL; it is loaded only
// when a job asks for --rendezvous-tls. Plain functions and data, because either side may have its
// own C++ runtime.
//
// A session turns bytes into bytes and touches no socket. It takes everything that it is fed;
// take() returns what it has to send to the peer. One thread at a time uses a session.
#pragma once

#include <stddef.h>

namespace hora::tls {

inline constexpr int kModuleVersion = 2;
inline constexpr size_t kFingerprintBytes = 32;
inline constexpr size_t kSeedBytes = 32;
inline constexpr size_t kErrorBytes = 256;

// What read(), write() and shake() return instead of a number of bytes.
inline constexpr int kLater = 0;
inline constexpr int kEnd = -1;
inline constexpr int kFailed = -2;

}  // namespace hora::tls

extern "C" {

struct hora_tls_identity;  // a key and its certificate
struct hora_tls_session;   // one end of one connection

struct hora_tls_module {
  int version;
  const char* library_version;  // "3.0.19"

  // Makes a new key and a certificate for `name`. Only its fingerprint, the SHA-256 of the
  // certificate in DER, vouches for it. From one seed (null: from chance) every process makes the
  // same. Null: `error` says why.
  hora_tls_identity* (*make_identity)(const char* name, const unsigned char* seed,
                                      unsigned char* fingerprint, char* error);
  void (*free_identity)(hora_tls_identity*);

  hora_tls_session* (*serve)(hora_tls_identity*);  // null: no memory
  // Connects only to a server with the certificate of this fingerprint.
  hora_tls_session* (*connect)(const unsigned char* fingerprint);
  void (*free_session)(hora_tls_session*);

  // Accepts bytes that the peer has sent. 0: no memory.
  int (*feed)(hora_tls_session*, const char* bytes, size_t size);
  // Continues the handshake: 1 when it is done, kLater, kFailed.
  int (*shake)(hora_tls_session*);
  // Returns the number of bytes (and completes the handshake first), kLater, kEnd or kFailed.
  long (*read)(hora_tls_session*, char* out, size_t size);
  // Returns the number of bytes taken; kLater before the handshake is done.
  long (*write)(hora_tls_session*, const char* bytes, size_t size);
  void (*close)(hora_tls_session*);  // announces the end to the peer
  // Returns the number of bytes; 0 when there is nothing to send.
  size_t (*take)(hora_tls_session*, char* out, size_t size);
  // 1 when the handshake is not done, or only a part of a message has arrived.
  int (*in_between)(const hora_tls_session*);
  const char* (*error)(const hora_tls_session*);  // after kFailed
};

#define HORA_TLS_ENTRY_POINT "hora_tls_module_entry"
using hora_tls_entry_point = const hora_tls_module* (*)();

}  // extern "C"
