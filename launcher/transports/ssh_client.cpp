// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/ssh_client.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "launcher/transports/libssh.h"
#include "rendezvous/base/encoding.h"
#include "rendezvous/base/machine.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/files.h"

// Where the module is linked into the program: tests that are libssh's server, too.
extern "C" __attribute__((weak)) const hora::launcher::LibsshModule* hora_libssh_module_entry();

namespace hora::launcher {

namespace {

// Next to what horarun ships: ../share/hora, from the program's real path.
Result<std::string> module_path() {
  const auto folder = os::program_folder();
  if (!folder) return folder.error();
  return *folder + "/../share/hora/" + std::string(own_machine()) + "/launcher/libhora_ssh.so";
}

Result<const LibsshModule*> open_module() {
  if (hora_libssh_module_entry != nullptr) return hora_libssh_module_entry();
  const auto path = module_path();
  if (!path) return path.error();
  // RTLD_LOCAL: the OpenSSL of the rendezvous (libhora_tls.so) is another one. RTLD_NODELETE:
  // OpenSSL registers handlers that run at the end of the process.
  void* library = ::dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return make_error(ErrorCode::kNotFound, "this installation has no ssh (" +
                                                (why == nullptr ? *path : std::string(why)) +
                                                "); build the target 'hora_ssh' or install again");
  }
  const auto entry = reinterpret_cast<LibsshEntryPoint>(::dlsym(library, HORA_LIBSSH_ENTRY_POINT));
  const LibsshModule* module = entry == nullptr ? nullptr : entry();
  if (module == nullptr || module->border != libssh_border()) {
    return make_error(ErrorCode::kFailed, *path + " belongs to another version of Hora");
  }
  return module;
}

Result<const LibsshModule*> load() {
  auto module = open_module();
  const char* why = module ? (*module)->prepare() : nullptr;
  if (why != nullptr) return make_error(ErrorCode::kFailed, why);
  return module;
}

// Once in a process, whether it succeeds or not.
const Result<const LibsshModule*>& loaded() {
  static const auto module = load();
  return module;
}

}  // namespace

Status prepare_libssh() {
  if (!loaded()) return loaded().error();
  return Ok{};
}

const LibsshModule& libssh() { return **loaded(); }

// The libssh types stay out of the header.
struct SshClient::Handles {
  ssh_session session = nullptr;
  ssh_channel channel = nullptr;
  ssh_channel_callbacks_struct callbacks{};
  ssh_counter_struct socket_bytes{};
  os::Fd for_libssh;  // until it connects, and owns it

  // Not ssh_disconnect(): it forgets a socket that was given to it without closing it.
  ~Handles() {
    if (session != nullptr) libssh().ssh_free(session);
  }
};

// --- the host key --------------------------------------------------------------------------------

namespace {

using Trust = SshHostKey::Trust;

// False if libssh has no key to show.
bool read_key(ssh_session session, SshHostKey& result) {
  ssh_key raw = nullptr;
  if (libssh().ssh_get_server_publickey(session, &raw) != SSH_OK) return false;
  const SshKey owner(raw);
  char* base64 = nullptr;
  if (libssh().ssh_pki_export_pubkey_base64(raw, &base64) != SSH_OK) return false;
  const SshText text(base64);
  result.key = from_base64(text.get()).value_or("");
  result.type = std::string(type_of_key(result.key));
  unsigned char* hash = nullptr;
  std::size_t length = 0;
  if (libssh().ssh_get_publickey_hash(raw, SSH_PUBLICKEY_HASH_SHA256, &hash, &length) == SSH_OK) {
    const SshText print(libssh().ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256, hash, length));
    if (print) result.fingerprint = print.get();
    libssh().ssh_clean_pubkey_hash(&hash);
  }
  return !result.type.empty();
}

}  // namespace

SshHostKey check_host_key(ssh_session_struct* session, const KnownHost& known) {
  SshHostKey result;
  result.known_as = known.name;
  if (!read_key(session, result)) return result;
  const KnownKey* line = known.line_about(result.key);
  if (line == nullptr) {
    result.trust = Trust::kUnknown;
    return result;
  }
  result.line = *line;
  if (line->marker == KnownKey::Marker::kRevoked) {
    result.trust = Trust::kRevoked;
  } else {
    result.trust = line->key == result.key ? Trust::kKnown : Trust::kChanged;
  }
  return result;
}

// --- the login -----------------------------------------------------------------------------------

namespace {

// Private keys with a passphrase cannot be used, because horarun never prompts. The callback
// records that libssh asked for one, so that the error can name the cause.
int refuse_passphrase(const char*, char*, size_t, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

// The server sends the list of methods with each refusal.
std::string methods_of(ssh_session session) {
  const int methods = libssh().ssh_userauth_list(session, nullptr);
  std::string names;
  for (const auto& [method, name] : {std::pair{SSH_AUTH_METHOD_PUBLICKEY, "publickey"},
                                     std::pair{SSH_AUTH_METHOD_PASSWORD, "password"},
                                     std::pair{SSH_AUTH_METHOD_INTERACTIVE, "keyboard-interactive"},
                                     std::pair{SSH_AUTH_METHOD_HOSTBASED, "hostbased"},
                                     std::pair{SSH_AUTH_METHOD_GSSAPI_MIC, "gssapi-with-mic"}}) {
    if ((static_cast<unsigned>(methods) & method) != 0) {
      names += (names.empty() ? "" : ", ") + std::string(name);
    }
  }
  return names;
}

}  // namespace

// Tries one identity after another. libssh needs repeated calls for each, so `left_` is a member,
// and its first entry is under way.
class SshClient::Authentication {
 public:
  // `agent_socket`: where the agent of those identities listens. The session outlives this object.
  Authentication(ssh_session session, std::vector<SshIdentity> identities, std::string agent_socket)
      : session_(session), agent_socket_(std::move(agent_socket)), left_(std::move(identities)) {}

  Step proceed() {
    while (!left_.empty()) {
      const SshIdentity& identity = left_.front();
      switch (identity.source == SshIdentity::Source::kAgent ? try_agent(identity)
                                                             : try_file(identity)) {
        case Attempt::kAgain:
          return Step::kAgain;
        case Attempt::kSuccess:
          return Step::kDone;
        case Attempt::kBroken:
          return Step::kFailed;
        case Attempt::kDenied:
          break;
      }
      left_.erase(left_.begin());
      begun_ = false;
      loaded_.reset();
    }
    return Step::kFailed;
  }

  // As far as this knows.
  const SshLogin& login() const { return login_; }

 private:
  enum class Attempt { kAgain, kSuccess, kDenied, kBroken };

  // libssh lists the keys of the agent again for each call that is not a continuation.
  Attempt try_agent(const SshIdentity& identity) {
    if (!relay_) {
      auto relay = SshAgentRelay::connect(agent_socket_);
      if (!relay) {
        login_.tried.push_back(identity.name + " (" + relay.error().message + ")");
        return Attempt::kDenied;
      }
      relay_ = *std::move(relay);
      // libssh owns it from here on.
      (void)libssh().ssh_set_agent_socket(session_, relay_->take_agent().release());
    }
    if (!std::exchange(begun_, true)) relay_->show({identity.key, identity.comment});
    return outcome_of(libssh().ssh_userauth_agent(session_, nullptr), identity.name);
  }

  // Sends the signature at once, without asking first whether the server would accept the key. This
  // saves one round trip per key. The key stays loaded between the calls for one attempt.
  Attempt try_file(const SshIdentity& identity) {
    if (!loaded_) {
      ssh_key key = nullptr;
      bool asked = false;
      const int code = libssh().ssh_pki_import_privkey_file(identity.name.c_str(), nullptr,
                                                            refuse_passphrase, &asked, &key);
      if (code != SSH_OK) {
        login_.tried.push_back(identity.name + (asked
                                                    ? " (has a passphrase: load it into ssh-agent)"
                                                    : " (cannot be read)"));
        return Attempt::kDenied;
      }
      loaded_.reset(key);
    }
    return outcome_of(libssh().ssh_userauth_publickey(session_, nullptr, loaded_.get()),
                      identity.name);
  }

  // After a server ends the login (too many keys, say), libssh still waits for an answer: the
  // connection counts more than the code. An error while the server is still there (a key type that
  // libssh cannot sign with, say) rules out this identity only. "Partial" means that the server
  // accepted the key and wants more than a key.
  Attempt outcome_of(int code, const std::string& name) {
    if (code == SSH_AUTH_SUCCESS) return Attempt::kSuccess;
    const bool gone = libssh().ssh_is_connected(session_) == 0;
    if (code == SSH_AUTH_AGAIN && !gone) return Attempt::kAgain;
    const bool half = code == SSH_AUTH_PARTIAL;
    login_.half_authenticated |= half;
    login_.tried.push_back(name +
                           (half ? " (accepted, but the server asks for more than a key)" : ""));
    return gone ? Attempt::kBroken : Attempt::kDenied;
  }

  ssh_session session_;
  const std::string agent_socket_;
  std::unique_ptr<SshAgentRelay> relay_;  // from the first key of the agent on
  std::vector<SshIdentity> left_;         // still to be tried
  bool begun_ = false;                    // the first one is
  SshKey loaded_;                         // of the attempt under way
  SshLogin login_;
};

SshClient::Step SshClient::authenticate() { return authentication_->proceed(); }

SshLogin SshClient::login() const {
  SshLogin login = authentication_->login();
  login.methods = methods_of(handles_->session);
  if (!connected()) login.closed = error();
  return login;
}

// --- the session ---------------------------------------------------------------------------------

// The client keeps the socket; libssh gets a duplicate. So the client can still poll and peek at
// the connection after libssh has closed its copy on an error.
SshClient::SshClient(const SshTarget& target, Keys keys, os::Fd socket)
    : target_(target),
      keys_(std::move(keys)),
      socket_(std::move(socket)),
      handles_(std::make_unique<Handles>()) {}

Result<std::unique_ptr<SshClient>> SshClient::create(const SshTarget& target, Keys keys,
                                                     os::Fd socket) {
  std::unique_ptr<SshClient> client(new SshClient(target, std::move(keys), std::move(socket)));
  HORA_TRY(client->set_up());
  return client;
}

SshClient::~SshClient() = default;

Status SshClient::set_up() {
  handles_->session = libssh().ssh_new();
  ssh_session session = handles_->session;
  if (session == nullptr) return make_error(ErrorCode::kUnavailable, "libssh: out of memory");
  const int duplicate = ::fcntl(socket_.get(), F_DUPFD_CLOEXEC, 0);
  if (duplicate < 0) return errno_error(errno, "duplicating a socket");
  handles_->for_libssh = os::Fd(duplicate);
  if (duplicate > 0xffff) {  // libssh keeps only 16 bits of it
    return make_error(ErrorCode::kUnavailable, "too many open files for libssh");
  }
  HORA_TRY(set_options());
  libssh().ssh_set_blocking(session, 0);
  libssh().ssh_set_counters(session, &handles_->socket_bytes, nullptr);
  authentication_ =
      std::make_unique<Authentication>(session, keys_.identities.usable, target_.keys.agent_socket);
  return Ok{};
}

// Every list that the configuration has is given to libssh, which takes what it knows of it: what
// is not in the list is not used. Where nothing is left, libssh cannot make this connection.
Status SshClient::set_algorithms() {
  const SshAlgorithms& wanted = target_.algorithms;
  const std::string host_keys = keys_.known.in_order(wanted.host_keys);
  const std::pair<ssh_options_e, const std::string&> lists[] = {
      {SSH_OPTIONS_KEY_EXCHANGE, wanted.kex},
      {SSH_OPTIONS_CIPHERS_C_S, wanted.ciphers},
      {SSH_OPTIONS_CIPHERS_S_C, wanted.ciphers},
      {SSH_OPTIONS_HMAC_C_S, wanted.macs},
      {SSH_OPTIONS_HMAC_S_C, wanted.macs},
      {SSH_OPTIONS_PUBLICKEY_ACCEPTED_TYPES, wanted.public_keys},
      {SSH_OPTIONS_HOSTKEYS, host_keys}};
  for (const auto& [option, list] : lists) {
    if (!list.empty() &&
        libssh().ssh_options_set(handles_->session, option, list.c_str()) != SSH_OK) {
      return make_error(ErrorCode::kFailed, "libssh has no algorithm of " + list);
    }
  }
#if LIBSSH_VERSION_INT >= SSH_VERSION_INT(0, 10, 0)
  if (wanted.rsa_bits > 0 && libssh().ssh_options_set(handles_->session, SSH_OPTIONS_RSA_MIN_SIZE,
                                                      &wanted.rsa_bits) != SSH_OK) {
    return libssh_error();
  }
#endif
  return Ok{};
}

// Set in this order: what libssh reads of a configuration must not undo what is decided here.
Status SshClient::set_options() {
  ssh_session session = handles_->session;
  // libssh copies every option value.
  const auto set = [&](ssh_options_e option, const void* value) {
    return libssh().ssh_options_set(session, option, value) == SSH_OK;
  };
  const int off = 0;
  const auto port = static_cast<unsigned>(target_.port);
  // libssh looks for a home directory, and exits where the account has none (a container's uid
  // without a name), so SSH_DIR is set.
  if (!set(SSH_OPTIONS_PROCESS_CONFIG, &off) || !set(SSH_OPTIONS_SSH_DIR, "/")) {
    return libssh_error();
  }
  // What the file sets is overridden by what follows.
  if (const auto& config = target_.libssh_config) {
    (void)set(SSH_OPTIONS_HOST, target_.name.c_str());
    const char* file = config->empty() ? nullptr : config->c_str();
    if (libssh().ssh_options_parse_config(session, file) != SSH_OK) return libssh_error();
  }
  // host_key() looks into known_hosts itself. Where libssh has read the configuration, libssh does
  // so, too, for the order of the host key algorithms. An IPv6 address goes in brackets, so that
  // its colons do not read as a port.
  const SshHostKeyPolicy& policy = target_.host_keys;
  const bool v6 = policy.known_as.find(':') != std::string::npos;
  const std::string known_as = v6 ? "[" + policy.known_as + "]" : policy.known_as;
  const std::string file = target_.libssh_config && !policy.known_hosts_files.empty()
                               ? policy.known_hosts_files.front()
                               : "/dev/null";
  const bool good = set(SSH_OPTIONS_HOST, known_as.c_str()) && set(SSH_OPTIONS_PORT, &port) &&
                    set(SSH_OPTIONS_USER, target_.user.c_str()) &&
                    set(SSH_OPTIONS_KNOWNHOSTS, file.c_str()) &&
                    set(SSH_OPTIONS_GLOBAL_KNOWNHOSTS, "/dev/null") &&
                    (!target_.route.compression || set(SSH_OPTIONS_COMPRESSION, "yes"));
  if (!good) return libssh_error();
  return set_algorithms();
}

// True when libssh holds bytes that the socket has not taken yet.
bool SshClient::wants_write() const {
  return (libssh().ssh_get_poll_flags(handles_->session) & SSH_WRITE_PENDING) != 0;
}

// sshd leaves Nagle's algorithm on: its second small message waits until the first one is
// acknowledged, and the kernel delays acknowledgements by 40 ms. TCP_QUICKACK turns that delay off,
// but the kernel turns it on again by itself, so every wake-up sets the option.
void SshClient::acknowledge_now() {
  const int on = 1;
  (void)::setsockopt(socket_.get(), IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
}

bool SshClient::connected() const { return libssh().ssh_is_connected(handles_->session) != 0; }

std::string SshClient::error() const {
  const char* text = libssh().ssh_get_error(handles_->session);
  return text != nullptr ? text : "";
}

Error SshClient::libssh_error() const {
  return make_error(ErrorCode::kFailed, "libssh: " + error());
}

// --- handshake -----------------------------------------------------------------------------------

// Peeks at what libssh reads next. If the server closes the connection, its first line explains why
// ("Exceeded MaxStartups", an HTTP answer), and so does the lack of one.
void SshClient::look_at_banner() {
  if (banner_settled_) return;
  char bytes[256];
  const ssize_t got = ::recv(socket_.get(), bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
  if (got <= 0) return;
  const std::string_view seen(bytes, static_cast<std::size_t>(got));
  const std::size_t end = seen.find('\n');
  banner_ = std::string(trim(seen.substr(0, end)));
  banner_settled_ = end != std::string_view::npos;
}

// MSG_PEEK leaves the byte in place for libssh.
bool SshClient::server_hung_up() const {
  char byte = 0;
  const ssize_t got = ::recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

// Called again after every wake-up until it returns kDone or kFailed.
SshClient::Step SshClient::handshake() {
  look_at_banner();
  // The first call hands the duplicate to libssh, which owns and closes it from here on, unless it
  // refuses the option.
  if (handles_->for_libssh.valid()) {
    const socket_t fd = handles_->for_libssh.release();
    if (libssh().ssh_options_set(handles_->session, SSH_OPTIONS_FD, &fd) != SSH_OK) {
      ::close(fd);
      return Step::kFailed;
    }
  }
  const int code = libssh().ssh_connect(handles_->session);
  // ssh_connect() makes its socket blocking. The flag belongs to the connection, which both
  // descriptors share; a full socket must not block the thread that serves the other hosts.
  ::fcntl(socket_.get(), F_SETFL, O_NONBLOCK);
  if (code == SSH_OK) return Step::kDone;
  if (code == SSH_AGAIN) return Step::kAgain;
  // Another server than ssh's may have sent a line and closed meanwhile: libssh then fails to
  // write, and has read nothing.
  look_at_banner();
  return Step::kFailed;
}

SshHostKey SshClient::host_key() const { return check_host_key(handles_->session, keys_.known); }

// --- the command ---------------------------------------------------------------------------------

void SshClient::set_sink(Sink sink) { sink_ = std::move(sink); }

// Opens a channel, then requests the command; each step may need several calls. A call after the
// last command has started begins again, on a fresh channel of the same connection.
SshClient::Step SshClient::execute(const std::string& command) {
  Handles& h = *handles_;
  if (exec_stage_ == ExecStage::kNone || exec_stage_ == ExecStage::kRunning) {
    exit_ = Exit{};
    if (h.channel != nullptr) {
      // The callbacks go first: freeing a channel may run them.
      libssh().ssh_remove_channel_callbacks(h.channel, &h.callbacks);
      libssh().ssh_channel_free(h.channel);
    }
    h.channel = libssh().ssh_channel_new(h.session);
    if (h.channel == nullptr) return Step::kFailed;
    h.callbacks = {};
    ssh_callbacks_init(&h.callbacks);
    h.callbacks.userdata = this;
    h.callbacks.channel_data_function = [](ssh_session, ssh_channel, void* data, uint32_t size,
                                           int is_stderr, void* self) {
      // Taking all bytes makes libssh reopen the channel's window; back-pressure comes from not
      // calling attend().
      auto* client = static_cast<SshClient*>(self);
      if (client->sink_) client->sink_({static_cast<const char*>(data), size}, is_stderr != 0);
      return static_cast<int>(size);
    };
    h.callbacks.channel_eof_function = [](ssh_session, ssh_channel, void* self) {
      static_cast<SshClient*>(self)->exit_.output_ended = true;
    };
    // A close without status or signal settles the exit: nothing more can follow on this channel.
    h.callbacks.channel_close_function = [](ssh_session, ssh_channel, void* self) {
      auto* client = static_cast<SshClient*>(self);
      client->exit_.output_ended = client->exit_.settled = true;
    };
    h.callbacks.channel_exit_status_function = [](ssh_session, ssh_channel, int status,
                                                  void* self) {
      static_cast<SshClient*>(self)->exit_.end.exit_status = status;
    };
    h.callbacks.channel_exit_signal_function = [](ssh_session, ssh_channel, const char* signal, int,
                                                  const char*, const char*, void* self) {
      static_cast<SshClient*>(self)->exit_.end.signal = signal != nullptr ? signal : "unknown";
    };
    if (libssh().ssh_set_channel_callbacks(h.channel, &h.callbacks) != SSH_OK) return Step::kFailed;
    exec_stage_ = ExecStage::kOpening;
  }
  // kOpening and kRequesting survive a return with kAgain, so the next call resumes there.
  if (exec_stage_ == ExecStage::kOpening) {
    const int code = libssh().ssh_channel_open_session(h.channel);
    if (code != SSH_OK) return code == SSH_AGAIN ? Step::kAgain : Step::kFailed;
    exec_stage_ = ExecStage::kRequesting;
  }
  const int code = libssh().ssh_channel_request_exec(h.channel, command.c_str());
  if (code == SSH_AGAIN) return Step::kAgain;
  exec_stage_ = ExecStage::kRunning;
  return code == SSH_OK ? Step::kDone : Step::kFailed;
}

// libssh's byte counters show whether anything moved; its return codes do not.
bool SshClient::attend() {
  Handles& h = *handles_;
  if (h.channel == nullptr || !connected()) return false;
  const auto bytes_before = h.socket_bytes.in_bytes + h.socket_bytes.out_bytes;
  // Either call handles one read's worth of packets; the first does nothing once the output has
  // ended, the second once the exit is known.
  if (!exit_.output_ended) {
    (void)libssh().ssh_channel_poll(h.channel, 1);
  } else if (!exit_.settled) {
    // The call only makes libssh read.
    (void)libssh().ssh_channel_get_exit_status(h.channel);
  }
  // EOF, status and close may come in any order; the exit is known once the first two are there.
  if (exit_.output_ended && (exit_.end.exit_status || !exit_.end.signal.empty()))
    exit_.settled = true;
  return h.socket_bytes.in_bytes + h.socket_bytes.out_bytes != bytes_before;
}

// Returns 0 both for "not running yet" and for "the socket is full"; the caller waits for a
// wake-up.
Result<std::size_t> SshClient::write_input(std::string_view bytes) {
  Handles& h = *handles_;
  if (h.channel == nullptr || exec_stage_ != ExecStage::kRunning) return std::size_t{0};
  if (wants_write()) return std::size_t{0};  // libssh would keep what the socket does not take
  const int wrote =
      libssh().ssh_channel_write(h.channel, bytes.data(), static_cast<std::uint32_t>(bytes.size()));
  if (wrote < 0) return make_error(ErrorCode::kUnavailable, error());
  return static_cast<std::size_t>(wrote);
}

// The remote command sees the end of its input; its output continues.
Status SshClient::close_input() {
  if (handles_->channel == nullptr) return Ok{};
  if (libssh().ssh_channel_send_eof(handles_->channel) == SSH_ERROR) {
    return make_error(ErrorCode::kUnavailable, error());
  }
  return Ok{};
}

}  // namespace hora::launcher
