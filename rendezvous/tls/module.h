// The border between Hora and libhora_tls.so, the one file that knows OpenSSL: loaded when a job
// asks for --rendezvous-tls, and never otherwise. Plain functions and data, for either side may
// have its own C++ runtime.
//
// A session turns bytes into bytes and touches no socket. What it is handed it takes whole; what it
// has to say to the peer is fetched by take(). One thread at a time uses a session.
#pragma once

#include <stddef.h>

namespace hora::tls {

inline constexpr int kModuleVersion = 1;
inline constexpr size_t kFingerprintBytes = 32;
inline constexpr size_t kErrorBytes = 256;

// What read(), write() and shake() answer when it is no number of bytes.
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

  // A new key and a certificate for `name`, that nobody but its fingerprint vouches for: the
  // SHA-256 of the certificate, in DER. Null: `error` says why.
  hora_tls_identity* (*make_identity)(const char* name, unsigned char* fingerprint, char* error);
  void (*free_identity)(hora_tls_identity*);

  hora_tls_session* (*serve)(hora_tls_identity*);  // null: no memory
  // For a server with the certificate of this fingerprint, and no other.
  hora_tls_session* (*connect)(const unsigned char* fingerprint);
  void (*free_session)(hora_tls_session*);

  // Bytes that the peer has sent. 0: no memory.
  int (*feed)(hora_tls_session*, const char* bytes, size_t size);
  // Goes on with the handshake: 1 when it is done, kLater, kFailed.
  int (*shake)(hora_tls_session*);
  // The number of bytes (shakes hands first where that is not done), kLater, kEnd or kFailed.
  long (*read)(hora_tls_session*, char* out, size_t size);
  // The number of bytes taken; kLater before the handshake is done.
  long (*write)(hora_tls_session*, const char* bytes, size_t size);
  void (*close)(hora_tls_session*);  // tells the peer that no more follows
  // The number of bytes; 0 when there is nothing to send.
  size_t (*take)(hora_tls_session*, char* out, size_t size);
  // 1 when the handshake is not done, or a part of a message has been fed.
  int (*in_between)(const hora_tls_session*);
  const char* (*error)(const hora_tls_session*);  // after kFailed
};

#define HORA_TLS_ENTRY_POINT "hora_tls_module_entry"
using hora_tls_entry_point = const hora_tls_module* (*)();

}  // extern "C"
