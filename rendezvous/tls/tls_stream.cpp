// SPDX-License-Identifier: Apache-2.0
// A stream over a TLS session of the module, which knows bytes and no sockets. Invariant: after
// each call, what the session wants to send is in outgoing_, and as much of it as the kernel takes
// has been sent.
#include "rendezvous/tls/tls_stream.h"

#include <dlfcn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <memory>

#include "rendezvous/base/encoding.h"
#include "rendezvous/base/machine.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/os/files.h"
#include "rendezvous/tls/module.h"

// The module's entry point, where the module is linked into the program (apps/dial).
extern "C" __attribute__((weak)) const hora_tls_module* hora_tls_module_entry(void);

namespace hora::tls {

namespace {

constexpr std::string_view kModule = "libhora_tls.so";
// A record's header, and the most that it may announce (RFC 8446, 5.1 and 5.2).
constexpr std::size_t kRecordHeader = 5;
constexpr std::size_t kLargestRecord = kRecordHeader + 16'384 + 256;
static_assert(net::Stream::kLeastRoom > kLargestRecord);
// A client speaks first, and sends no more than this before it is answered.
constexpr std::size_t kLargestHello = 4 * 1024;
constexpr char kHandshakeRecord = 0x16;
constexpr char kTlsMajor = 0x03;
// This much is encrypted at one time: data for a peer that does not read costs no more than this.
constexpr std::size_t kWritten = 64 * 1024;

// --- the module ----------------------------------------------------------------------------------

int anchor = 0;

std::string own_folder() {
  Dl_info info{};
  std::string path =
      ::dladdr(&anchor, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
  // Linked into a program, dladdr() says what argv[0] said, often just a name.
  if (path.find(".so") == std::string::npos) {  // a program may have been found by PATH
    if (auto folder = os::program_folder()) return *std::move(folder);
  }
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

// Next to libhora, in ../lib of the bundle's programs, and in the bundle of horarun's installation.
std::string find_module() {
  const std::string folder = own_folder();
  const std::string installed = "/../share/hora/" + std::string(own_machine()) + "/bundle/lib/";
  for (const std::string_view place : {"/", "/../lib/", installed.c_str()}) {
    std::string path = folder + std::string(place) + std::string(kModule);
    if (::access(path.c_str(), R_OK) == 0) return path;
  }
  return {};
}

Result<const hora_tls_module*> load_module() {
  // A static program has it inside.
  if (hora_tls_module_entry != nullptr) return hora_tls_module_entry();
  const std::string path = find_module();
  if (path.empty()) {
    return make_error(ErrorCode::kNotFound,
                      std::string(kModule) + " is not there: this Hora was built without OpenSSL");
  }
  // RTLD_LOCAL: the program may have an OpenSSL of its own, and the two must not see each other's
  // symbols. RTLD_NODELETE: OpenSSL registers handlers that run at the end of the process.
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return make_error(ErrorCode::kFailed, why == nullptr ? path : why);
  }
  const auto entry = reinterpret_cast<hora_tls_entry_point>(::dlsym(library, HORA_TLS_ENTRY_POINT));
  const hora_tls_module* module = entry == nullptr ? nullptr : entry();
  if (module == nullptr || module->version != kModuleVersion) {
    return make_error(ErrorCode::kFailed, path + " belongs to another version of Hora");
  }
  return module;
}

Result<const hora_tls_module*> module() {
  // Once per process; OpenSSL cannot be unloaded.
  static const Result<const hora_tls_module*> loaded = load_module();
  return loaded;
}

// --- a session -----------------------------------------------------------------------------------

class Session {
 public:
  Session(const hora_tls_module& module, hora_tls_session* session)
      : module_(&module), session_(session) {}
  Session(Session&& other) noexcept
      : module_(other.module_), session_(std::exchange(other.session_, nullptr)) {}
  Session& operator=(Session&& other) noexcept {
    std::swap(module_, other.module_);
    std::swap(session_, other.session_);
    return *this;
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    if (session_ != nullptr) module_->free_session(session_);
  }

  explicit operator bool() const { return session_ != nullptr; }
  bool feed(std::string_view bytes) {
    return module_->feed(session_, bytes.data(), bytes.size()) == 1;
  }
  int shake() { return module_->shake(session_); }
  long read(char* out, std::size_t size) { return module_->read(session_, out, size); }
  long write(const char* bytes, std::size_t size) { return module_->write(session_, bytes, size); }
  void close() { module_->close(session_); }
  std::size_t take(char* out, std::size_t size) { return module_->take(session_, out, size); }
  bool in_between() const { return module_->in_between(session_) == 1; }
  const char* error() const { return module_->error(session_); }

 private:
  const hora_tls_module* module_;
  hora_tls_session* session_;
};

class Identity {
 public:
  Identity(const hora_tls_module& module, hora_tls_identity* identity)
      : module_(module), identity_(identity) {}
  ~Identity() { module_.free_identity(identity_); }
  Identity(const Identity&) = delete;
  Identity& operator=(const Identity&) = delete;

  const hora_tls_module& module() const { return module_; }
  Session serve() const { return {module_, module_.serve(identity_)}; }

 private:
  const hora_tls_module& module_;
  hora_tls_identity* const identity_;
};

// --- the stream ----------------------------------------------------------------------------------

// Both ends. A server's session begins when a whole first message has arrived: a client that only
// opens a connection, or sends slowly, costs no more than without TLS.
class TlsStream final : public net::Stream {
 public:
  TlsStream(os::Fd fd, std::shared_ptr<const Identity> identity)
      : Stream(std::move(fd)),
        identity_(std::move(identity)),
        session_(identity_->module(), nullptr) {}
  TlsStream(os::Fd fd, Session session) : Stream(std::move(fd)), session_(std::move(session)) {}
  // A peer that sees the connection end without a close message cannot distinguish an end from a
  // cut.
  ~TlsStream() override { say_goodbye(); }

  ssize_t receive(char* buffer, std::size_t size) override;
  ssize_t send(const iovec* parts, std::size_t count) override;
  bool shut_down_sending() override {
    say_goodbye();
    return Stream::shut_down_sending();
  }
  bool must_push() const override { return sent_ < outgoing_.size(); }
  bool push() override;
  bool in_between() const override { return session_ ? session_.in_between() : !hello_.empty(); }
  std::string_view trouble() const override { return trouble_; }

  // For a client, before anything else.
  Status shake_hands(Deadline deadline);

 private:
  bool take_hello(std::string_view bytes);
  void collect();
  ssize_t fail(std::string_view why);  // -1 and EPROTO
  void say_goodbye();

  std::shared_ptr<const Identity> identity_;  // of a server
  Session session_;
  std::string hello_;     // bytes from before the session
  std::string outgoing_;  // encrypted
  std::size_t sent_ = 0;  // of that
  std::string trouble_;
  bool over_ = false;  // no more can be said
};

ssize_t TlsStream::fail(std::string_view why) {
  if (trouble_.empty()) trouble_ = why;
  // An alert reports the error to the peer; it may be lost.
  collect();
  static_cast<void>(push());
  over_ = true;
  errno = EPROTO;
  return -1;
}

// The session's output follows the bytes that are on their way already.
void TlsStream::collect() {
  if (!session_) return;
  std::array<char, 16 * 1024> piece;
  while (const std::size_t size = session_.take(piece.data(), piece.size())) {
    if (sent_ == outgoing_.size()) {
      outgoing_.clear();
      sent_ = 0;
    }
    outgoing_.append(piece.data(), size);
  }
}

bool TlsStream::push() {
  while (must_push()) {
    const iovec part{outgoing_.data() + sent_, outgoing_.size() - sent_};
    const ssize_t sent = Stream::send(&part, 1);
    if (sent < 0) {
      if (errno == EINTR) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS;
    }
    sent_ += static_cast<std::size_t>(sent);
  }
  if (outgoing_.capacity() > kWritten / 4) {
    std::string().swap(outgoing_);  // an assignment keeps the room
  } else {
    outgoing_.clear();
  }
  sent_ = 0;
  return true;
}

// True when there is a session, which has had all of the bytes.
bool TlsStream::take_hello(std::string_view bytes) {
  hello_.append(bytes);
  const bool is_tls =
      hello_[0] == kHandshakeRecord && (hello_.size() == 1 || hello_[1] == kTlsMajor);
  if (!is_tls) fail("the client did not use TLS");
  if (!is_tls || hello_.size() < kRecordHeader) return false;
  const std::size_t length = kRecordHeader + static_cast<unsigned char>(hello_[3]) * 256U +
                             static_cast<unsigned char>(hello_[4]);
  if (length > kLargestHello) fail("the first message is too long");
  if (over_ || hello_.size() < length) return false;
  session_ = identity_->serve();
  if (!session_ || !session_.feed(hello_)) {
    fail("no memory");
    return false;
  }
  std::string().swap(hello_);
  return true;
}

ssize_t TlsStream::receive(char* buffer, std::size_t size) {
  // The bytes that are fed now and those left over from before all fit into the buffer.
  if (over_ || size <= kLargestRecord) {
    errno = over_ ? EPROTO : EINVAL;
    return -1;
  }
  const ssize_t raw = Stream::receive(buffer, std::min(size - kLargestRecord, kWritten));
  // Plain errno values pass through: the caller handles EAGAIN and EINTR as on a socket.
  if (raw <= 0) return raw;
  const std::string_view bytes(buffer, static_cast<std::size_t>(raw));
  if (!session_) {
    if (!take_hello(bytes)) {
      if (!over_) errno = EAGAIN;
      return -1;
    }
  } else if (!session_.feed(bytes)) {
    return fail("no memory");
  }
  std::size_t total = 0;
  long got = 0;
  while ((got = session_.read(buffer + total, size - total)) > 0)
    total += static_cast<std::size_t>(got);
  if (got == kFailed) return fail(session_.error());
  collect();
  if (!push()) return fail("the connection was lost");
  if (total > 0) return static_cast<ssize_t>(total);
  if (got == kEnd) return 0;
  errno = EAGAIN;
  return -1;
}

ssize_t TlsStream::send(const iovec* parts, std::size_t count) {
  if (over_ || !push()) {
    errno = over_ ? EPROTO : EPIPE;
    return -1;
  }
  std::size_t taken = 0;
  for (std::size_t i = 0; i < count && taken < kWritten && !must_push(); ++i) {
    const std::size_t wanted = std::min(parts[i].iov_len, kWritten - taken);
    std::size_t done = 0;
    while (done < wanted) {
      if (!session_) break;
      const long written =
          session_.write(static_cast<const char*>(parts[i].iov_base) + done, wanted - done);
      if (written == kLater) break;
      if (written < 0) return fail(session_.error());
      done += static_cast<std::size_t>(written);
    }
    taken += done;
    if (done < parts[i].iov_len) break;
  }
  collect();
  if (!push()) {
    errno = EPIPE;
    return -1;
  }
  // Taken means encrypted, not sent: must_push() says whether some of it is still here.
  if (taken > 0) return static_cast<ssize_t>(taken);
  errno = EAGAIN;
  return -1;
}

void TlsStream::say_goodbye() {
  if (over_ || !session_ || session_.in_between()) return;
  over_ = true;
  session_.close();
  collect();
  static_cast<void>(push());
}

Status TlsStream::shake_hands(Deadline deadline) {
  std::array<char, 16 * 1024> piece;
  for (;;) {
    const int done = session_.shake();
    collect();
    const std::string problem = done < 0 ? session_.error() : "";
    if (!push()) return errno_error(errno, "TLS: sending");
    while (must_push() && done >= 0) {
      HORA_TRY(net::wait_writable(fd(), deadline, "TLS handshake"));
      if (!push()) return errno_error(errno, "TLS: sending");
    }
    if (done < 0) return make_error(ErrorCode::kDenied, problem);
    if (done == 1) return Ok{};
    const ssize_t got = Stream::receive(piece.data(), piece.size());
    if (got == 0) {
      // A server that is short of connections does this, too.
      return make_error(ErrorCode::kUnavailable,
                        "TLS: the server closed the connection during the handshake");
    }
    if (got > 0) {
      if (!session_.feed({piece.data(), static_cast<std::size_t>(got)})) {
        return make_error(ErrorCode::kFailed, "TLS: no memory");
      }
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      HORA_TRY(net::wait_readable(fd(), deadline, "TLS handshake"));
    } else if (errno != EINTR) {
      return errno_error(errno, "TLS: receiving");
    }
  }
}

Result<std::unique_ptr<net::Stream>> connect_stream(const std::string& fingerprint, os::Fd fd,
                                                    Deadline deadline) {
  auto loaded = module();
  if (!loaded) return std::move(loaded).error().with_context("--rendezvous-tls");
  Session session(**loaded,
                  (*loaded)->connect(reinterpret_cast<const unsigned char*>(fingerprint.data())));
  if (!session) return make_error(ErrorCode::kFailed, "TLS: no memory");
  auto stream = std::make_unique<TlsStream>(std::move(fd), std::move(session));
  HORA_TRY(stream->shake_hands(deadline));
  return std::unique_ptr<net::Stream>(std::move(stream));
}

}  // namespace

Result<ServerSide> make_server_side(const std::string& name, std::string_view seed) {
  if (!seed.empty() && seed.size() != kSeedBytes) {
    return make_error(ErrorCode::kFailed, "TLS: the seed is not 32 bytes");
  }
  auto loaded = module();
  if (!loaded) return std::move(loaded).error();
  std::array<unsigned char, kFingerprintBytes> digest;
  std::array<char, kErrorBytes> error{};
  hora_tls_identity* made = (*loaded)->make_identity(
      name.c_str(), seed.empty() ? nullptr : reinterpret_cast<const unsigned char*>(seed.data()),
      digest.data(), error.data());
  if (made == nullptr) return make_error(ErrorCode::kFailed, error.data());
  auto identity = std::make_shared<const Identity>(**loaded, made);
  ServerSide side;
  side.fingerprint = to_hex({reinterpret_cast<const char*>(digest.data()), digest.size()});
  side.accept = [identity](os::Fd fd) -> std::unique_ptr<net::Stream> {
    return std::make_unique<TlsStream>(std::move(fd), identity);
  };
  return side;
}

net::ConnectStream pinned(std::string_view fingerprint) {
  if (fingerprint.empty()) return {};
  const auto bytes = from_hex(fingerprint);
  if (!bytes || bytes->size() != kFingerprintBytes) {
    return [](os::Fd, Deadline) -> Result<std::unique_ptr<net::Stream>> {
      return make_error(ErrorCode::kUsage,
                        "HORA_RENDEZVOUS_TLS is not the SHA-256 of a certificate");
    };
  }
  return [fingerprint = *bytes](os::Fd fd, Deadline deadline) {
    return connect_stream(fingerprint, std::move(fd), deadline);
  };
}

Result<Library> load() {
  auto loaded = module();
  if (!loaded) return std::move(loaded).error();
  return Library{find_module(), (*loaded)->library_version};
}

}  // namespace hora::tls
