// SPDX-License-Identifier: Apache-2.0
// The peer is libssh's own server, in a thread: real key exchanges, without an sshd.
#include "launcher/transports/ssh_client.h"

#include <sys/socket.h>

#include <fstream>
#include <future>
#include <thread>

#include <libssh/libssh.h>
#include <libssh/server.h>

#include "launcher/transports/libssh.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/launcher/transports/shell_run.h"

namespace hora::launcher {
namespace {

using Trust = SshHostKey::Trust;

constexpr const char* kHost = "node7";

// A new key, with its public half as known_hosts has it: "TYPE BASE64".
struct HostKey {
  ssh_key key = nullptr;  // libssh's server frees the one that it gets
  std::string line;

  explicit HostKey(ssh_keytypes_e type = SSH_KEYTYPE_ED25519, int bits = 0) {
    REQUIRE(prepare_libssh());
    REQUIRE(::ssh_pki_generate(type, bits, &key) == SSH_OK);
    char* text = nullptr;
    REQUIRE(::ssh_pki_export_pubkey_base64(key, &text) == SSH_OK);
    const SshText base64(text);
    line = std::string(::ssh_key_type_to_char(::ssh_key_type(key))) + " " + base64.get();
  }
};

std::string line_of_another_key(ssh_keytypes_e type = SSH_KEYTYPE_ED25519, int bits = 0) {
  const HostKey other(type, bits);
  const SshKey owner(other.key);
  return other.line;
}

// A server that shows `key` and a client that has seen it.
class Exchange {
 public:
  explicit Exchange(const HostKey& key, unsigned port = 22) : Exchange() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    server_ = std::thread([this, fd = ends[1], key = key.key] { serve(fd, key); });
    const int off = 0;
    const socket_t fd = ends[0];
    for (const auto& [option, value] :
         {std::pair<ssh_options_e, const void*>{SSH_OPTIONS_PROCESS_CONFIG, &off},
          {SSH_OPTIONS_SSH_DIR, "/"},
          {SSH_OPTIONS_HOST, kHost},
          {SSH_OPTIONS_PORT, &port},
          {SSH_OPTIONS_USER, "user"},
          {SSH_OPTIONS_KNOWNHOSTS, "/dev/null"},
          {SSH_OPTIONS_GLOBAL_KNOWNHOSTS, "/dev/null"},
          {SSH_OPTIONS_FD, &fd}}) {
      REQUIRE(::ssh_options_set(client_, option, value) == SSH_OK);
    }
    const int connected = ::ssh_connect(client_);
    INFO(::ssh_get_error(client_));
    REQUIRE(connected == SSH_OK);
  }
  ~Exchange() {
    client_gone_.set_value();
    if (server_.joinable()) server_.join();
    ::ssh_free(client_);
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  ssh_session client() const { return client_; }

 private:
  // The other constructor may fail when the server runs; the destructor ends it even then.
  Exchange() : client_(::ssh_new()) {}

  void serve(int fd, ssh_key key) {
    ssh_bind bind = ::ssh_bind_new();
    ssh_session session = ::ssh_new();
    const long most_seconds = 20;
    ::ssh_options_set(session, SSH_OPTIONS_TIMEOUT, &most_seconds);
    ::ssh_bind_options_set(bind, SSH_BIND_OPTIONS_IMPORT_KEY, key);
    if (::ssh_bind_accept_fd(bind, session, fd) == SSH_OK &&
        ::ssh_handle_key_exchange(session) == SSH_OK) {
      // libssh itself may wait without end for a client that has gone.
      client_gone_.get_future().wait();
    }
    ::ssh_free(session);
    ::ssh_bind_free(bind);
  }

  ssh_session client_;
  std::promise<void> client_gone_;
  std::thread server_;
};

struct Files {
  test::TemporaryDirectory directory;
  SshTarget target;

  Files() { target.host_keys.known_as = kHost; }
  std::string write(const std::string& name, const std::string& text) {
    std::string path = directory.path() + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  std::string known(const std::string& name, const std::string& text) {
    target.host_keys.known_hosts_files.push_back(write(name, text));
    return target.host_keys.known_hosts_files.back();
  }
  SshHostKey check(ssh_session client) const {
    return check_host_key(client, look_up_known_host(target.host_keys, target.port));
  }
};

TEST_CASE("a host key that no file knows") {
  const HostKey key;
  const Exchange exchange(key);
  Files files;
  files.known("known_hosts", "other " + key.line + "\n");
  const SshHostKey seen = files.check(exchange.client());
  CHECK(seen.trust == Trust::kUnknown);
  CHECK(seen.type == "ssh-ed25519");
  CHECK(seen.fingerprint.rfind("SHA256:", 0) == 0);
  CHECK(known_hosts_line(seen.known_as, seen.key, false) == kHost + (" " + key.line));
  CHECK(seen.line.file.empty());
}

TEST_CASE("the file that knows the host key is named") {
  const HostKey key;
  const Exchange exchange(key);
  Files files;
  std::string deciding;
  Trust expected = Trust::kKnown;
  SECTION("the only one") { deciding = files.known("one", kHost + (" " + key.line) + "\n"); }
  SECTION("one that confirms counts more than one that contradicts") {
    files.known("one", kHost + (" " + line_of_another_key()) + "\n");
    deciding = files.known("two", kHost + (" " + key.line) + "\n");
  }
  SECTION("whichever comes first") {
    deciding = files.known("one", kHost + (" " + key.line) + "\n");
    files.known("two", kHost + (" " + line_of_another_key()) + "\n");
  }
  SECTION("a file that is not there is no obstacle") {
    files.target.host_keys.known_hosts_files.push_back(files.directory.path() + "/missing");
    deciding = files.known("two", kHost + (" " + key.line) + "\n");
  }
  SECTION("another key of that type") {
    deciding = files.known("one", kHost + (" " + line_of_another_key()) + "\n");
    expected = Trust::kChanged;
  }
  SECTION("a key of another type") {
    const std::string other = line_of_another_key(SSH_KEYTYPE_ECDSA, 256);
    deciding = files.known("one", kHost + (" " + other) + "\n");
    expected = Trust::kChanged;
  }
  const SshHostKey seen = files.check(exchange.client());
  CHECK(seen.trust == expected);
  CHECK(seen.line.file == deciding);
}

TEST_CASE("another port is another host") {
  const HostKey key;
  const Exchange exchange(key, 2222);
  Files files;
  files.target.port = 2222;
  const std::string entry = "[" + std::string(kHost) + "]:2222 " + key.line;
  const std::string file = files.known("known_hosts", entry + "\n");
  const SshHostKey seen = files.check(exchange.client());
  CHECK(seen.known_as == "[" + std::string(kHost) + "]:2222");
  CHECK(seen.trust == Trust::kKnown);
  CHECK(seen.line.file == file);
}

TEST_CASE("a revoked host key is refused, whatever else is known of it") {
  const HostKey key;
  const Exchange exchange(key);
  Files files;
  files.known("known_hosts", kHost + (" " + key.line) + "\n");
  const std::string deciding = files.known("revoking", "@revoked * " + key.line + "\n");
  const SshHostKey seen = files.check(exchange.client());
  CHECK(seen.trust == Trust::kRevoked);
  CHECK(seen.line.file == deciding);
}

TEST_CASE("without a key exchange there is no key") {
  REQUIRE(prepare_libssh());
  ssh_session session = ::ssh_new();
  CHECK(Files().check(session).trust == Trust::kUnreadable);
  ::ssh_free(session);
}

}  // namespace
}  // namespace hora::launcher
