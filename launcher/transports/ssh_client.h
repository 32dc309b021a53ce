// SPDX-License-Identifier: Apache-2.0
// One ssh connection and the one command that runs over it, on libssh in non-blocking mode.
// The only header of ours in front of libssh. Never waits: each step does what can be done now and
// says whether to call it again when the socket is ready.
//
// Not thread-safe; one thread at a time. Needs prepare_libssh() (libssh.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/transports/ssh_authentication.h"
#include "launcher/transports/ssh_host_key.h"
#include "launcher/transports/ssh_target.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

class SshClient {
 public:
  using Step = SshStep;

  // This machine's data for the host: its known keys, and keys to log in with.
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
  const SshAuthentication& authentication() const { return *authentication_; }
  const Keys& keys() const { return keys_; }
  // Whether an authentication failed for good, or the connection with it.
  bool connected() const;

  // Runs `command` on a new channel, in place of the last one.
  Step execute(const std::string& command);

  // The command's output comes here from inside attend(), all of it, however much: a caller without
  // space does not call attend(). The sink must not call back.
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
    bool settled = false;       // and how it ended is known as well as it ever will be
    std::optional<int> status;
    std::string signal;
  };
  const Exit& exit() const { return exit_; }

  std::string error() const;  // libssh's words for the last failure

 private:
  struct Handles;
  SshClient(const SshTarget& target, Keys keys, os::Fd socket);
  Status set_up();
  Status set_options();
  Status set_algorithms();
  void look_at_banner();
  void discard_channel();

  const SshTarget target_;
  const Keys keys_;
  os::Fd socket_;  // ours; libssh has a duplicate, which it closes when it likes
  std::unique_ptr<Handles> handles_;
  std::string banner_;
  bool banner_settled_ = false;

  std::unique_ptr<SshAuthentication> authentication_;  // ends before the session does

  enum class ExecStage { kNone, kOpening, kRequesting, kRunning };
  ExecStage exec_stage_ = ExecStage::kNone;
  Sink sink_;
  Exit exit_;
};

}  // namespace hora::launcher
