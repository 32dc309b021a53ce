// SPDX-License-Identifier: Apache-2.0
// With the ssh-keygen and ssh-agent of this machine.
#include "launcher/transports/ssh_keys.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "rendezvous/base/encoding.h"
#include "rendezvous/os/files.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace hora::launcher {
namespace {

// An agent on a socket in a folder of its own, with key files next to it.
class Bench {
 public:
  Bench() { keys.agent_socket = path("agent"); }
  ~Bench() { run("test ! -e pid || kill $(cat pid)"); }

  void run(const std::string& line) {
    REQUIRE(std::system(("cd " + folder_.path() + " && (" + line + ") >/dev/null 2>&1").c_str()) ==
            0);
  }
  void start_agent() {
    run("ssh-agent -s -a agent >environment && sed -n 's/.*SSH_AGENT_PID=\\([0-9]*\\);.*/\\1/p' "
        "environment >pid");
  }
  void make_key(const std::string& name, const std::string& options = "-t ed25519 -N ''") {
    run("ssh-keygen -q -f " + name + " " + options);
  }
  void load(const std::string& name) { run("SSH_AUTH_SOCK=agent ssh-add " + name); }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }

  // What is tried: "file:PATH" or "agent:NAME", without the folder.
  std::vector<std::string> plan() {
    std::vector<std::string> tried;
    last = plan_identities(keys);
    for (const SshIdentity& each : last.usable) {
      const bool agent = each.source == SshIdentity::Source::kAgent;
      std::string name = each.name;
      if (const auto at = name.find(folder_.path()); at != std::string::npos) {
        name.erase(at, folder_.path().size() + 1);
      }
      tried.push_back((agent ? "agent:" : "file:") + name.substr(0, name.find(' ')));
    }
    return tried;
  }

  SshKeys keys;
  SshIdentities last;

 private:
  test::TemporaryDirectory folder_;
};

using Tried = std::vector<std::string>;

TEST_CASE("identities: named keys of the agent, its others, then files") {
  Bench bench;
  bench.start_agent();
  for (const char* name : {"a", "b", "c"}) {
    bench.make_key(name, std::string("-t ed25519 -N '' -C of_") + name);
  }
  bench.load("a");
  bench.load("b");
  bench.keys.files = {bench.path("c"), bench.path("b")};
  CHECK(bench.plan() == Tried{"agent:b", "agent:of_a", "file:c"});
  bench.keys.identities_only = true;
  CHECK(bench.plan() == Tried{"agent:b", "file:c"});
  bench.keys.agent_socket.clear();
  CHECK(bench.plan() == Tried{"file:c", "file:b"});
}

TEST_CASE("identities: a file that only shows a public key stands for the agent's") {
  Bench bench;
  bench.start_agent();
  bench.keys.identities_only = true;
  SECTION("with a passphrase") {
    bench.make_key("k", "-t ed25519 -N secret");
    bench.run(
        "cp k open; ssh-keygen -q -p -P secret -N '' -f open; SSH_AUTH_SOCK=agent ssh-add open; rm "
        "k.pub");
    bench.keys.files = {bench.path("k")};
  }
  SECTION("in an older format, whose public half is in a file next to it") {
    bench.make_key("k", "-t rsa -m PEM -N secret");
    bench.run(
        "cp k open; ssh-keygen -q -p -P secret -N '' -f open; SSH_AUTH_SOCK=agent ssh-add open");
    bench.keys.files = {bench.path("k")};
  }
  SECTION("the private half is not there") {
    bench.make_key("k");
    bench.load("k");
    bench.run("rm k");
    bench.keys.files = {bench.path("k")};
  }
  SECTION("the public file itself is named") {
    bench.make_key("k");
    bench.load("k");
    bench.run("rm k");
    bench.keys.files = {bench.path("k.pub")};
  }
  const Tried tried = bench.plan();
  REQUIRE(tried.size() == 1);
  CHECK(tried[0].starts_with("agent:k"));
  CHECK(bench.last.unusable.empty());
}

TEST_CASE("identities: what cannot be used says why") {
  Bench bench;
  bench.keys.agent_socket = bench.path("no-agent");
  bench.make_key("open");
  bench.run("chmod 644 open; touch empty");
  bench.keys.files = {bench.path("open"), bench.path("open.pub"), bench.path("empty")};
  bench.keys.missing = {bench.path("gone")};
  CHECK(bench.plan().empty());
  REQUIRE(bench.last.unusable.size() == 5);
  CHECK(bench.last.unusable[0].find("no-agent: ") != std::string::npos);
  CHECK(bench.last.unusable[1].find("gone (missing)") != std::string::npos);
  CHECK(bench.last.unusable[2].find("chmod 600") != std::string::npos);
  CHECK(bench.last.unusable[3].find("the private key is neither there") != std::string::npos);
  CHECK(bench.last.unusable[4].find("empty (") != std::string::npos);
}

TEST_CASE("identities: one key is tried once") {
  Bench bench;
  bench.keys.agent_socket.clear();
  bench.make_key("a");
  bench.run("cp -p a b");
  bench.keys.files = {bench.path("a"), bench.path("b"), bench.path("a")};
  CHECK(bench.plan() == Tried{"file:a"});
}

TEST_CASE("identities: a type that libssh lacks is left to the ssh program") {
  Bench bench;
  const std::string key = ssh_string("ssh-mldsa44-ed25519") + ssh_string("x");
  std::ofstream(bench.path("new.pub")) << "ssh-mldsa44-ed25519 " << to_base64(key) << " me@here\n";
  bench.keys.agent_socket.clear();
  bench.keys.files = {bench.path("new")};
  CHECK(bench.plan().empty());
  REQUIRE(bench.last.foreign.size() == 1);
  CHECK(bench.last.foreign[0].type == "ssh-mldsa44-ed25519");
}

TEST_CASE("identities: keys of types that the configuration rules out") {
  Bench bench;
  bench.keys.agent_socket.clear();
  bench.make_key("a");
  bench.make_key("b", "-t rsa -N ''");
  bench.keys.files = {bench.path("a"), bench.path("b")};
  CHECK(plan_identities(bench.keys, "ssh-ed25519,rsa-sha2-512").usable.size() == 2);
  const SshIdentities plan = plan_identities(bench.keys, "rsa-sha2-512,ssh-dss");
  REQUIRE((plan.usable.size() == 1 && plan.unusable.size() == 1));
  CHECK(plan.usable[0].name == bench.path("b"));
  CHECK(plan.unusable[0] == bench.path("a") + " (PubkeyAcceptedAlgorithms has no ssh-ed25519)");
}

TEST_CASE("identities: the public key in a key file") {
  Bench bench;
  for (const char* type : {"ed25519", "ecdsa", "rsa"}) {
    bench.make_key(type, std::string("-t ") + type + " -N secret");
    const auto hidden = os::read_file(bench.path(type));
    const auto shown = os::read_file(bench.path(type) + ".pub");
    REQUIRE((hidden && shown));
    CHECK_FALSE(public_key_in(*shown).empty());
    CHECK(public_key_in(*hidden) == public_key_in(*shown));
  }
  CHECK(public_key_in("").empty());
  CHECK(public_key_in("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n").empty());
  CHECK(public_key_in("ssh-ed25519 AAAA\n").empty());
}

}  // namespace
}  // namespace hora::launcher
