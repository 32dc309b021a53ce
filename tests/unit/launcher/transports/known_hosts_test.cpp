// SPDX-License-Identifier: Apache-2.0
// What ssh 9.2, 10.0 and 10.6 do with the same files is in tests/integration/ssh/test_login.py.
#include "launcher/transports/known_hosts.h"

#include <fstream>

#include "launcher/transports/ssh_keys.h"
#include "rendezvous/base/encoding.h"
#include "rendezvous/os/files.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace hora::launcher {
namespace {

using Marker = KnownKey::Marker;

std::string key_of(std::string_view type, std::string_view body) {
  return ssh_string(type) + ssh_string(body);
}

const std::string kEd = key_of("ssh-ed25519", "one");
const std::string kOtherEd = key_of("ssh-ed25519", "two");
const std::string kRsa = key_of("ssh-rsa", "three");
const std::string kNew = key_of("mldsa44-ed25519", "four");

std::string line(const std::string& hosts, const std::string& key) {
  return hosts + " " + std::string(type_of_key(key)) + " " + to_base64(key) + "\n";
}

bool is_known(const std::string& hosts, const std::string& name) {
  return !lines_for(line(hosts, kEd), name, "file").empty();
}

TEST_CASE("known_hosts: names, wildcards and negations") {
  CHECK(is_known("node1", "node1"));
  CHECK(is_known("Node1", "NODE1"));
  CHECK(is_known("other,node1", "node1"));
  CHECK(is_known("node*", "node1"));
  CHECK(is_known("n?de1", "node1"));
  CHECK(is_known("*e1*", "node1"));
  CHECK(is_known("[node1]:2222", "[node1]:2222"));
  CHECK(is_known("[node*]:22*", "[node1]:2222"));
  CHECK(is_known("fe80::1", "fe80::1"));
  CHECK_FALSE(is_known("node", "node1"));
  CHECK_FALSE(is_known("node1?", "node1"));
  CHECK_FALSE(is_known("node1", "[node1]:2222"));
  CHECK_FALSE(is_known("*,!node1", "node1"));
  CHECK_FALSE(is_known("!node1,*", "node1"));
  CHECK_FALSE(is_known("!node2", "node1"));
}

// Made by ssh 9.2 for [127.0.0.1]:2222.
TEST_CASE("known_hosts: hashed names") {
  const std::string hash = "|1|zCPAdxUSVV0IamBbOX59hBtBwmk=|2ueL7IuAaqOfdAUaPF2JBqCH79Y=";
  CHECK(is_known(hash, "[127.0.0.1]:2222"));
  CHECK_FALSE(is_known(hash, "127.0.0.1"));
  CHECK_FALSE(is_known("|1|zCPAdxUSVV0IamBbOX59hBtBwmk=", "[127.0.0.1]:2222"));
  CHECK_FALSE(is_known("|1|AAAA|AAAA", "node1"));
}

TEST_CASE("known_hosts: what cannot be parsed counts for nothing") {
  CHECK(lines_for("node1\nnode1 ssh-ed25519\nnode1 ssh-ed25519 !!!\n", "node1", "file").empty());
  CHECK(lines_for("# " + line("node1", kEd), "node1", "file").empty());
  CHECK(lines_for("@unknown " + line("node1", kEd), "node1", "file").empty());
  // The type does not match the key.
  CHECK(lines_for("node1 ssh-rsa " + to_base64(kEd), "node1", "file").empty());
  const auto found =
      lines_for(" \tnode1\t ssh-ed25519\t" + to_base64(kEd) + " a comment\r\n", "node1", "file");
  REQUIRE(found.size() == 1);
  CHECK(found[0] == KnownKey{Marker::kNone, "ssh-ed25519", kEd, "file", 1, false});
}

TEST_CASE("known_hosts: markers") {
  const auto found = lines_for("@revoked " + line("*", kEd) + "@cert-authority " +
                                   line("node*,!node9", kRsa) + "@revoked " + line("other", kRsa),
                               "node1", "file");
  REQUIRE(found.size() == 2);
  CHECK(found[0].marker == Marker::kRevoked);
  CHECK(found[1].marker == Marker::kAuthority);
}

struct Files {
  test::TemporaryDirectory directory;
  SshHostKeyPolicy policy;

  Files() { policy.known_as = "node1"; }
  void add(const std::string& name, const std::string& text) {
    policy.known_hosts_files.push_back(directory.path() + "/" + name);
    std::ofstream(policy.known_hosts_files.back()) << text;
  }
};

TEST_CASE("known_hosts: the line that decides") {
  Files files;
  SECTION("a line that confirms counts more than one that contradicts, in any file") {
    files.add("a", line("node1", kOtherEd));
    files.add("b", line("node1", kEd));
    const KnownHost host = look_up_known_host(files.policy, 22);
    REQUIRE(host.line_about(kEd) != nullptr);
    CHECK(host.line_about(kEd)->file == files.policy.known_hosts_files[1]);
    CHECK(host.line_about(kRsa)->key != kRsa);
  }
  SECTION("a revoked key is revoked, whatever else is known of it") {
    files.add("a", line("node1", kEd));
    files.add("b", "@revoked " + line("*", kEd));
    CHECK(look_up_known_host(files.policy, 22).line_about(kEd)->marker == Marker::kRevoked);
    CHECK(look_up_known_host(files.policy, 2222).line_about(kEd)->marker == Marker::kRevoked);
  }
  SECTION("without the port a host is only confirmed") {
    files.add("a", line("node1", kEd));
    const KnownHost host = look_up_known_host(files.policy, 2222);
    CHECK(host.name == "[node1]:2222");
    CHECK(host.line_about(kEd)->key == kEd);
    CHECK(host.line_about(kRsa) == nullptr);
  }
  SECTION("the full name goes before the one without port") {
    files.add("a", line("node1", kEd) + line("[node1]:2222", kOtherEd));
    CHECK(look_up_known_host(files.policy, 2222).line_about(kEd)->key == kOtherEd);
  }
  SECTION("an alias is looked up as it is") {
    files.policy.is_alias = true;
    files.policy.known_as = "Alias";
    files.add("a", line("[alias]:2222", kEd) + line("alias", kRsa));
    const KnownHost host = look_up_known_host(files.policy, 2222);
    CHECK(host.name == "Alias");
    CHECK(host.line_about(kEd)->key == kRsa);
  }
  SECTION("a key of a type that libssh lacks is another key") {
    files.add("a", line("node1", kNew));
    const KnownHost host = look_up_known_host(files.policy, 22);
    CHECK(host.line_about(kEd)->key == kNew);
    CHECK_FALSE(host.has_libssh_key());
    CHECK(host.foreign_key("ssh-ed25519") == nullptr);
    CHECK(host.foreign_key("ssh-ed25519,mldsa44-ed25519")->key == kNew);
  }
  SECTION("an authority, by either name") {
    files.add("a", "@cert-authority " + line("node*", kEd));
    CHECK(look_up_known_host(files.policy, 22).authority() != nullptr);
    CHECK(look_up_known_host(files.policy, 2222).authority() != nullptr);
    CHECK(look_up_known_host(files.policy, 22).line_about(kEd) == nullptr);
  }
}

TEST_CASE("known_hosts: algorithms of known keys come first") {
  KnownHost host;
  host.keys = {{Marker::kNone, "ssh-rsa", kRsa, "", 1, false},
               {Marker::kAuthority, "ssh-ed25519", kEd, "", 2, true}};
  CHECK(host.in_order("ssh-ed25519,rsa-sha2-512,rsa-sha2-256") ==
        "rsa-sha2-512,rsa-sha2-256,ssh-ed25519");
  CHECK(host.in_order("ssh-ed25519") == "ssh-ed25519");
}

TEST_CASE("known_hosts: a key is added once, by a name that is found again") {
  const test::TemporaryDirectory folder;
  const std::string file = folder.path() + "/ssh/known_hosts";
  for (const bool hash : {false, true}) {
    const std::string name = hash ? "[Node1]:2222" : "node2";
    REQUIRE(add_known_host(file, name, kEd, hash));
    REQUIRE(add_known_host(file, name, kEd, hash));
    const auto text = os::read_file(file);
    REQUIRE(text);
    CHECK(lines_for(*text, name, file).size() == 1);
    CHECK(text->find("ode1") == std::string::npos);
    std::ofstream(file, std::ios::app) << "# no end of line";
  }
}

}  // namespace
}  // namespace hora::launcher
