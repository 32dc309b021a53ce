// SPDX-License-Identifier: Apache-2.0
// What options, configuration and machine come to, without a file system.
#include "launcher/transports/ssh_target.h"

#include <map>

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

using FileKind = SshMachine::FileKind;
using Paths = std::vector<std::string>;

struct Bench {
  std::map<std::string, FileKind> files;
  SshOptions options;
  SshConfig config;
  SshMachine machine;

  Bench() {
    machine.home = "/home/ann";
    machine.local_user = "ann";
    machine.kind_of = [this](const std::string& path) {
      const auto found = files.find(path);
      return found == files.end() ? FileKind::kNone : found->second;
    };
  }
  Result<SshTarget> resolve(const Host& host = {"n1", "", {}}) {
    return resolve_ssh_target(host, options, config, machine);
  }
};

TEST_CASE("without options and configuration, OpenSSH's defaults hold") {
  Bench bench;
  bench.machine.agent_socket = "/run/agent";
  bench.files = {{"/home/ann/.ssh/id_rsa", FileKind::kFile},
                 {"/home/ann/.ssh/id_ed25519", FileKind::kFile},
                 {"/home/ann/.ssh/id_ecdsa", FileKind::kDirectory}};
  const auto target = bench.resolve();
  REQUIRE(target);
  CHECK(target->address == "n1");
  CHECK(target->port == 22);
  CHECK(target->user == "ann");
  CHECK(target->keys.files == Paths{"/home/ann/.ssh/id_ed25519", "/home/ann/.ssh/id_rsa"});
  CHECK(target->keys.use_agent);
  CHECK(target->keys.agent_first);
  CHECK(target->host_keys.known_hosts_files ==
        Paths{"/home/ann/.ssh/known_hosts", "/home/ann/.ssh/known_hosts2",
              "/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"});
  CHECK(target->host_keys.user_file_count == 2);
  CHECK(target->describe("") == "host n1 (n1:22)");
  CHECK(target->describe("10.0.0.1:22") == "host n1 (10.0.0.1:22)");
}

TEST_CASE("keys that are named come before the agent, and only the option's must exist") {
  Bench bench;
  bench.machine.agent_socket = "/run/agent";
  bench.files = {{"/k/one", FileKind::kFile}, {"/home/ann/.ssh/id_rsa", FileKind::kFile}};
  bench.config.identity_files = {"/k/missing", "/k/one"};
  auto target = bench.resolve();
  REQUIRE(target);
  CHECK(target->keys.files == Paths{"/k/one"});
  CHECK(target->keys.missing == Paths{"/k/missing"});
  CHECK_FALSE(target->keys.agent_first);
  bench.options.identity_file = "/k/missing";
  target = bench.resolve();
  REQUIRE_FALSE(target);
  CHECK(target.error().message == "the identity file /k/missing does not exist");
  bench.files["/k/missing"] = FileKind::kPipe;
  CHECK(bench.resolve().error().message == "the identity file /k/missing is not a regular file");
}

TEST_CASE("IdentityAgent and IdentitiesOnly decide about the agent") {
  Bench bench;
  bench.machine.agent_socket = "/run/agent";
  bench.config.identity_agent = "SSH_AUTH_SOCK";
  CHECK(bench.resolve()->keys.agent_socket == "/run/agent");
  bench.config.identity_agent = "~/agent";
  CHECK(bench.resolve()->keys.agent_socket == "/home/ann/agent");
  bench.config.identities_only = true;
  CHECK_FALSE(bench.resolve()->keys.use_agent);
  bench.config.identities_only.reset();
  bench.config.identity_agent = "None";
  CHECK_FALSE(bench.resolve()->keys.use_agent);
}

TEST_CASE("a configuration can forbid keys") {
  Bench bench;
  bench.config.preferred_authentications = "password,publickey";
  CHECK(bench.resolve()->keys.forbidden_by.empty());
  bench.config.preferred_authentications = "password";
  CHECK(bench.resolve()->keys.forbidden_by == "PreferredAuthentications password");
  bench.config.pubkey_authentication = false;
  CHECK(bench.resolve()->keys.forbidden_by == "PubkeyAuthentication no");
}

TEST_CASE("known_hosts files: tokens, none, and no pipes") {
  Bench bench;
  bench.config.hostname = "%h.example";
  bench.config.user_known_hosts_files = Paths{"/k/%h", "/k/pipe"};
  bench.config.global_known_hosts_files = Paths{"None"};
  bench.config.revoked_host_keys = "/k/revoked";
  bench.files["/k/pipe"] = FileKind::kPipe;
  auto target = bench.resolve();
  REQUIRE(target);
  CHECK(target->host_keys.known_hosts_files == Paths{"/k/n1.example"});
  CHECK(target->host_keys.user_file_count == 1);
  CHECK(target->host_keys.revoked_keys_file == "/k/revoked");
  CHECK(target->host_keys.known_as == "n1.example");
  bench.config.host_key_alias = "alias";
  bench.config.revoked_host_keys = "none";
  CHECK(bench.resolve()->host_keys.known_as == "alias");
  CHECK(bench.resolve()->host_keys.revoked_keys_file.empty());
}

TEST_CASE("a proxy command wins over a jump, and the last hop makes the connection") {
  Bench bench;
  bench.config.proxy_jump = "ssh://gw:2200";
  CHECK(bench.resolve()->route.proxy ==
        Paths{"ssh", "-o", "BatchMode=yes", "-p", "2200", "-W", "n1:22", "--", "gw"});
  bench.config.proxy_jump = "[fe80::1]";
  CHECK(bench.resolve({"fe80::2", "", {}})->route.proxy ==
        Paths{"ssh", "-o", "BatchMode=yes", "-W", "[fe80::2]:22", "--", "[fe80::1]"});
  bench.config.proxy_command = "nc %h %p";
  CHECK(bench.resolve()->route.proxy == Paths{"/bin/sh", "-c", "exec nc n1 22"});
  bench.config.proxy_command = "none";
  bench.config.proxy_jump = "none";
  CHECK(bench.resolve()->route.proxy.empty());
}

TEST_CASE("an account without a name needs a user for each host") {
  Bench bench;
  bench.machine.local_user = "";
  bench.machine.uid = 1234;
  const auto target = bench.resolve();
  REQUIRE_FALSE(target);
  CHECK(target.error().message.find("uid 1234 has no user name") == 0);
  CHECK(bench.resolve({"n1", "eve", {}})->user == "eve");
}

}  // namespace
}  // namespace hora::launcher
