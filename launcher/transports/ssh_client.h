// SPDX-License-Identifier: Apache-2.0
// One ssh connection and the one command that runs over it, on libssh in non-blocking mode. Never
// waits: each step does what can be done now and says whether to call it again when the socket is
// ready.
//
// One thread at a time. Needs prepare_libssh() (libssh.h), whose types stay out of this header.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/transports/known_hosts.h"
#include "launcher/transports/remote_command.h"
#include "launcher/transports/ssh_keys.h"
#include "launcher/transports/ssh_target.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/fd.h"

struct ssh_session_struct;  // libssh's

namespace hora::launcher {

// The host key of a server, compared with what this machine knows of the host.
struct SshHostKey {
  enum class Trust {
    kKnown,
    kUnknown,
    kChanged,  // another key is known, of this type or of another one
    kRevoked,
    kUnreadable
  };
  Trust trust = Trust::kUnreadable;
  std::string type;         // "ssh-ed25519"
  std::string fingerprint;  // "SHA256:..."
  std::string key;          // in wire format
  std::string known_as;     // the name of the host in known_hosts
  KnownKey line;            // the line that decided; its file is empty: none
};

// Call after the key exchange, on the session's thread. kUnreadable: libssh has no key, because
// there was no key exchange.
SshHostKey check_host_key(ssh_session_struct* session, const KnownHost& known);

// What the login led to.
struct SshLogin {
  std::vector<std::string> tried;   // the identities that failed, and why: for the error text
  bool half_authenticated = false;  // the server accepted a key and asks for a second factor
  std::string methods;  // that the server accepts: "publickey, password"; empty: it did not say
  std::string closed;   // how the connection ended; empty: it did not
};

class SshClient {
 public:
  // The result of a step. kAgain: call it again when the socket is ready.
  enum class Step { kAgain, kDone, kFailed };

  // What this machine has for the host: keys that it is known by, and keys to log in with.
  struct Keys {
    KnownHost known;
    SshIdentities identities;
  };

  // `socket` is a connected stream, non-blocking; the client owns it.
  static Result<std::unique_ptr<SshClient>> create(const SshTarget& target, Keys keys,
                                                   os::Fd socket);
  ~SshClient();
  SshClient(const SshClient&) = delete;
  SshClient& operator=(const SshClient&) = delete;

  int fd() const { return socket_.get(); }
  bool wants_write() const;  // bytes wait for the socket to take them
  // Call after every wake-up, before anything else: see ssh_client.cpp.
  void acknowledge_now();

  Step handshake();                                      // banners and key exchange
  const std::string& banner() const { return banner_; }  // the first line the server sent, so far
  bool server_hung_up() const;                           // it closed the connection
  SshHostKey host_key() const;                           // after the handshake
  Step authenticate();
  SshLogin login() const;  // after a failed authenticate()
  // Whether an authentication failed for good, or the connection with it.
  bool connected() const;

  // Runs `command` on a new channel, in place of the last one.
  Step execute(const std::string& command);

  // Receives all that the command writes, however much, from inside attend(): a caller without room
  // does not call attend(). The sink must not call back.
  using Sink = std::function<void(std::string_view bytes, bool is_stderr)>;
  void set_sink(Sink sink);
  // Takes in what has arrived, and sends what waits. True when there may be more to do at once.
  // False with connected() no longer true: the connection is lost.
  bool attend();
  // How many of `bytes` were taken; 0: wait for a wake-up.
  Result<std::size_t> write_input(std::string_view bytes);
  Status close_input();

  struct Exit {
    bool output_ended = false;  // the command will write no more
    bool settled = false;       // and nothing more will be known of `end`
    RemoteEnd end;
  };
  const Exit& exit() const { return exit_; }

  std::string error() const;  // libssh's text for the last failure

 private:
  struct Handles;
  class Authentication;
  SshClient(const SshTarget& target, Keys keys, os::Fd socket);
  Status set_up();
  Error libssh_error() const;
  Status set_options();
  Status set_algorithms();
  void look_at_banner();

  const SshTarget target_;
  const Keys keys_;
  os::Fd socket_;  // ours; libssh has a duplicate, which it closes when it likes
  std::unique_ptr<Handles> handles_;
  std::string banner_;
  bool banner_settled_ = false;

  std::unique_ptr<Authentication> authentication_;  // ends before the session does

  enum class ExecStage { kNone, kOpening, kRequesting, kRunning };
  ExecStage exec_stage_ = ExecStage::kNone;
  Sink sink_;
  Exit exit_;
};

}  // namespace hora::launcher
