// SPDX-License-Identifier: Apache-2.0
// libhora_tls.so. TLS 1.3 only, without client certificates and resumption: each connection makes a
// full handshake. The session reads from and writes to memory BIOs, so that the caller owns the
// socket.
#include "rendezvous/tls/module.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <new>

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

namespace {

using hora::tls::kEnd;
using hora::tls::kErrorBytes;
using hora::tls::kFailed;
using hora::tls::kLater;
using hora::tls::kModuleVersion;
constexpr std::size_t kDigest = hora::tls::kFingerprintBytes;

// RAII for OpenSSL's objects.
template <auto kFree>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Context = std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Ssl = std::unique_ptr<SSL, Freed<SSL_free>>;

// The user's openssl.cnf concerns their own programs; and OpenSSL must not free its memory at exit,
// because a thread may still use it. The table of all algorithms by name, a third of a short
// connection's time, is for programs that look them up by name.
bool ready() {
  return OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT |
                              OPENSSL_INIT_NO_ADD_ALL_CIPHERS | OPENSSL_INIT_NO_ADD_ALL_DIGESTS,
                          nullptr) == 1;
}

// The most recent entry of the thread's queue, in OpenSSL's words.
const char* last_reason() {
  const unsigned long code = ERR_peek_last_error();
  // Of a record that is none.
  if (ERR_GET_REASON(code) == SSL_R_WRONG_VERSION_NUMBER)
    return "the other side does not speak TLS";
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "unknown reason" : reason;
}

Context make_context() {
  Context context(SSL_CTX_new(TLS_method()));
  if (!context || SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) != 1) return nullptr;
  // RELEASE_BUFFERS: idle connections hold no buffers. The other two: a write may take a part, and
  // its retry may come from another address.
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // Sessions are never resumed, so a cache would only grow.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  // A ticket would only serve resumption.
  SSL_CTX_set_num_tickets(context.get(), 0);
  return context;
}

bool fingerprint_of(const X509* certificate, unsigned char* out) {
  unsigned size = 0;
  return X509_digest(certificate, EVP_sha256(), out, &size) == 1 && size == kDigest;
}

// P-256 is fast, and every TLS 1.3 library has it. Keys and signatures of Ed25519 are a function of
// the seed.
Key make_key(const unsigned char* seed) {
  if (seed == nullptr) return Key(EVP_EC_gen("P-256"));
  return Key(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, seed, hora::tls::kSeedBytes));
}

// A self-signed certificate. The peers ignore its dates, because the clocks of hosts differ and the
// fingerprint is proof enough. With a seed nothing in it is left to chance or to the clock.
Certificate make_certificate(EVP_PKEY* key, const char* name, bool is_seeded) {
  Certificate certificate(X509_new());
  if (!certificate) return nullptr;
  X509* const x = certificate.get();
  // X.509 expects every certificate of an issuer to have its own serial number.
  std::uint64_t serial = 1;
  const std::time_t begin = is_seeded ? 0 : std::time(nullptr) - 86'400;
  const std::time_t end = is_seeded ? 4'102'444'800 : begin + 3650L * 86'400;  // the year 2100
  X509_NAME* const subject = X509_get_subject_name(x);
  const auto* text = reinterpret_cast<const unsigned char*>(name);
  const bool made =
      (is_seeded || RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) == 1) &&
      X509_set_version(x, X509_VERSION_3) == 1 &&
      ASN1_INTEGER_set_uint64(X509_get_serialNumber(x), serial) == 1 &&
      ASN1_TIME_set(X509_getm_notBefore(x), begin) != nullptr &&
      ASN1_TIME_set(X509_getm_notAfter(x), end) != nullptr &&
      X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, text, -1, -1, 0) == 1 &&
      X509_set_issuer_name(x, subject) == 1 && X509_set_pubkey(x, key) == 1 &&
      X509_sign(x, key, is_seeded ? nullptr : EVP_sha256()) > 0;
  return made ? std::move(certificate) : nullptr;
}

}  // namespace

struct hora_tls_identity {
  Context context;
};

struct hora_tls_session {
  Context own_context;  // clients only; a server's belongs to its identity
  Ssl ssl;
  BIO* from_peer = nullptr;  // the SSL object owns both
  BIO* to_peer = nullptr;
  unsigned char expected[kDigest] = {};
  char error[kErrorBytes] = {};

  // Translates the result of an OpenSSL call into the constants of the border.
  int outcome(int result) {
    switch (SSL_get_error(ssl.get(), result)) {
      case SSL_ERROR_WANT_READ:
      case SSL_ERROR_WANT_WRITE:
        return kLater;
      case SSL_ERROR_ZERO_RETURN:
        return kEnd;
      default:
        // check_pin() may have left a more exact text.
        if (error[0] == '\0') std::snprintf(error, sizeof error, "TLS: %s", last_reason());
        // The error queue belongs to the thread: an entry left there would confuse the next
        // session.
        ERR_clear_error();
        return kFailed;
    }
  }
};

namespace {

void hex(const unsigned char* bytes, char* out) {
  for (std::size_t i = 0; i < kDigest; ++i) std::snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

// Replaces OpenSSL's check of a chain of authorities: accepts exactly the expected certificate.
int check_pin(X509_STORE_CTX* store, void*) {
  const auto* ssl = static_cast<const SSL*>(
      X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  auto* session = static_cast<hora_tls_session*>(SSL_get_app_data(ssl));
  unsigned char found[kDigest] = {};
  if (!fingerprint_of(X509_STORE_CTX_get0_cert(store), found)) return 0;
  if (CRYPTO_memcmp(found, session->expected, kDigest) == 0) return 1;
  // Both fingerprints, so that a person can see whether the ranks of two jobs are mixed up.
  char shown[2][2 * kDigest + 1];
  hex(found, shown[0]);
  hex(session->expected, shown[1]);
  std::snprintf(session->error, sizeof session->error,
                "TLS: the certificate there has the SHA-256 %s, the job's has %s: this is not the "
                "job's rendezvous",
                shown[0], shown[1]);
  X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_REJECTED);
  return 0;
}

// SSL_set_bio() takes over both BIOs; before it they are freed here.
hora_tls_session* new_session(SSL_CTX* context) {
  std::unique_ptr<hora_tls_session> session(new (std::nothrow) hora_tls_session);
  if (!session) return nullptr;
  session->ssl.reset(SSL_new(context));
  BIO* const from_peer = BIO_new(BIO_s_mem());
  BIO* const to_peer = BIO_new(BIO_s_mem());
  if (!session->ssl || from_peer == nullptr || to_peer == nullptr) {
    // BIO_free() accepts null.
    BIO_free(from_peer);
    BIO_free(to_peer);
    return nullptr;
  }
  SSL_set_bio(session->ssl.get(), from_peer, to_peer);
  // check_pin() finds the session by way of the SSL object.
  SSL_set_app_data(session->ssl.get(), session.get());
  session->from_peer = from_peer;
  session->to_peer = to_peer;
  return session.release();
}

hora_tls_identity* make_identity(const char* name, const unsigned char* seed,
                                 unsigned char* fingerprint, char* error) {
  // OpenSSL's reason goes into the caller's buffer; the queue is emptied for the next call.
  const auto failed = [error](const char* what) -> hora_tls_identity* {
    std::snprintf(error, kErrorBytes, "%s: %s", what, last_reason());
    ERR_clear_error();
    return nullptr;
  };
  if (!ready()) return failed("starting OpenSSL");
  const Key key = make_key(seed);
  if (!key) return failed("making a key");
  const Certificate certificate = make_certificate(key.get(), name, seed != nullptr);
  if (!certificate || !fingerprint_of(certificate.get(), fingerprint))
    return failed("making a certificate");
  Context context = make_context();
  if (!context || SSL_CTX_use_certificate(context.get(), certificate.get()) != 1 ||
      SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1) {
    return failed("making a TLS server");
  }
  auto* identity = new (std::nothrow) hora_tls_identity{std::move(context)};
  return identity != nullptr ? identity : failed("no memory");
}

void free_identity(hora_tls_identity* identity) { delete identity; }

hora_tls_session* serve(hora_tls_identity* identity) {
  hora_tls_session* session = new_session(identity->context.get());
  if (session != nullptr) SSL_set_accept_state(session->ssl.get());
  return session;
}

hora_tls_session* connect(const unsigned char* fingerprint) {
  if (!ready()) return nullptr;
  Context context = make_context();
  if (!context) return nullptr;
  // A server's context checks nothing: ranks have no certificates, only the token.
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_cert_verify_callback(context.get(), check_pin, nullptr);
  hora_tls_session* session = new_session(context.get());
  if (session == nullptr) return nullptr;
  // A client's context serves one session, since each may expect another certificate.
  session->own_context = std::move(context);
  std::memcpy(session->expected, fingerprint, kDigest);
  SSL_set_connect_state(session->ssl.get());
  return session;
}

// Freeing may leave entries in the thread's error queue, too.
void free_session(hora_tls_session* session) {
  delete session;
  ERR_clear_error();
}

int feed(hora_tls_session* session, const char* bytes, size_t size) {
  // A memory BIO takes an int and grows as necessary.
  const bool fits = size <= INT32_MAX;
  return fits && BIO_write(session->from_peer, bytes, static_cast<int>(size)) ==
                     static_cast<int>(size)
             ? 1
             : 0;
}

int shake(hora_tls_session* session) {
  ERR_clear_error();
  const int result = SSL_do_handshake(session->ssl.get());
  return result == 1 ? 1 : session->outcome(result);
}

long read(hora_tls_session* session, char* out, size_t size) {
  ERR_clear_error();
  size_t got = 0;
  const int result = SSL_read_ex(session->ssl.get(), out, size, &got);
  return result == 1 ? static_cast<long>(got) : session->outcome(result);
}

long write(hora_tls_session* session, const char* bytes, size_t size) {
  // SSL_write would start the handshake itself; the caller does that by shake().
  if (SSL_is_init_finished(session->ssl.get()) != 1) return kLater;
  ERR_clear_error();
  size_t taken = 0;
  const int result = SSL_write_ex(session->ssl.get(), bytes, size, &taken);
  return result == 1 ? static_cast<long>(taken) : session->outcome(result);
}

void close(hora_tls_session* session) {
  // During the handshake there is nothing to close.
  if (SSL_is_init_finished(session->ssl.get()) == 1) SSL_shutdown(session->ssl.get());
  ERR_clear_error();
}

size_t take(hora_tls_session* session, char* out, size_t size) {
  const int room = size > INT32_MAX ? INT32_MAX : static_cast<int>(size);
  const int got = BIO_read(session->to_peer, out, room);
  return got > 0 ? static_cast<size_t>(got) : 0;
}

int in_between(const hora_tls_session* session) {
  // SSL_has_pending() also counts a record that is not complete.
  return SSL_is_init_finished(session->ssl.get()) != 1 || SSL_has_pending(session->ssl.get()) == 1
             ? 1
             : 0;
}

const char* error(const hora_tls_session* session) { return session->error; }

}  // namespace

// The only symbol that the module exports. The order is that of the structure.
extern "C" __attribute__((visibility("default"))) const hora_tls_module* hora_tls_module_entry(
    void) {
  static const hora_tls_module module = {kModuleVersion, OpenSSL_version(OPENSSL_VERSION_STRING),
                                         make_identity,  free_identity,
                                         serve,          connect,
                                         free_session,   feed,
                                         shake,          read,
                                         write,          close,
                                         take,           in_between,
                                         error};
  return &module;
}
