// SPDX-License-Identifier: Apache-2.0
// What the output of `ssh -G` and the machine come to, without a file system. What OpenSSH itself
// makes of configuration files is tests/integration/ssh/test_config.py.
#include "launcher/transports/ssh_target.h"

#include <map>
#include <set>

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

using FileKind = SshMachine::FileKind;
using Paths = std::vector<std::string>;

// As OpenSSH 9.2 prints them, shortened.
constexpr std::string_view kDefaults =
    "host n1\nuser ann\nhostname n1\nport 22\naddressfamily any\ncompression no\n"
    "gssapiauthentication no\nhashknownhosts no\nidentitiesonly no\npubkeyauthentication true\n"
    "stricthostkeychecking ask\nrequiredrsasize 1024\ntcpkeepalive yes\n"
    "ciphers chacha20-poly1305@openssh.com,aes128-ctr,aes256-gcm@openssh.com\n"
    "kexalgorithms sntrup761x25519-sha512,curve25519-sha256,ecdh-sha2-nistp256\n"
    "macs hmac-sha2-256\nhostkeyalgorithms ssh-ed25519\npubkeyacceptedalgorithms ssh-ed25519\n"
    "identityfile ~/.ssh/id_rsa\nidentityfile ~/.ssh/id_ed25519\nconnecttimeout none\n"
    "globalknownhostsfile /etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2\n"
    "userknownhostsfile /home/ann/.ssh/known_hosts /home/ann/.ssh/known_hosts2\n"
    "canonicalizePermittedcnames none\n";

struct Bench {
  std::map<std::string, FileKind> files;
  std::map<std::string, std::string> variables;
  std::set<std::string> sockets;
  SshOptions options;
  SshSettings defaults = parse_ssh_settings(kDefaults);
  SshSettings settings = defaults;
  bool has_ticket = true;
  SshMachine machine;

  Bench() {
    machine.home = "/home/ann";
    machine.host_name = "head.cluster";
    machine.local_user = "ann";
    machine.shell = "/bin/bash";
    machine.uid = 7;
    machine.kind_of = [this](const std::string& path) {
      const auto found = files.find(path);
      return found == files.end() ? FileKind::kNone : found->second;
    };
    machine.listens = [this](const std::string& path) { return sockets.count(path) != 0; };
    machine.variable = [this](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      if (found == variables.end()) return std::nullopt;
      return found->second;
    };
    machine.may_have_ticket = [this] { return has_ticket; };
  }
  SshTarget resolve() {
    return resolve_ssh_target({"n1", "", {}}, options, settings, defaults, machine);
  }
  // With one setting changed: why the ssh program is needed.
  std::string reason(const std::string& key, const Paths& values) {
    const SshSettings before = settings;
    settings[key] = values;
    std::string why = resolve().program_reason;
    settings = before;
    return why;
  }
};

TEST_CASE("ssh target: OpenSSH's defaults") {
  Bench bench;
  bench.variables["SSH_AUTH_SOCK"] = "/run/agent";
  bench.files = {{"/home/ann/.ssh/id_rsa", FileKind::kFile},
                 {"/home/ann/.ssh/id_ed25519.pub", FileKind::kFile}};
  const SshTarget target = bench.resolve();
  CHECK(target.address == "n1");
  CHECK(target.port == 22);
  CHECK(target.user == "ann");
  CHECK(target.keys.files == Paths{"/home/ann/.ssh/id_rsa", "/home/ann/.ssh/id_ed25519"});
  CHECK(target.keys.missing.empty());
  CHECK(target.keys.agent_socket == "/run/agent");
  CHECK_FALSE(target.keys.identities_only);
  CHECK(target.keys.forbidden_by.empty());
  CHECK(target.host_keys.known_hosts_files ==
        Paths{"/home/ann/.ssh/known_hosts", "/home/ann/.ssh/known_hosts2",
              "/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"});
  CHECK(target.host_keys.user_file_count == 2);
  CHECK_FALSE(target.route.connect_timeout);
  CHECK(target.program_reason.empty());
  // Ours first, and only what OpenSSH allows.
  CHECK(target.algorithms.kex == "ecdh-sha2-nistp256,curve25519-sha256");
  CHECK(target.algorithms.ciphers ==
        "aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes128-ctr");
  CHECK(target.algorithms.rsa_bits == 1024);
  CHECK(target.describe("") == "host n1 (n1:22)");
  CHECK(target.describe("10.0.0.1:22") == "host n1 (10.0.0.1:22)");
}

TEST_CASE("ssh target: a list that the configuration changes is taken as it is") {
  Bench bench;
  bench.settings["kexalgorithms"] = {"diffie-hellman-group1-sha1,ecdh-sha2-nistp256"};
  CHECK(bench.resolve().algorithms.kex == "diffie-hellman-group1-sha1,ecdh-sha2-nistp256");
}

TEST_CASE("ssh target: what libssh cannot do is a reason for the ssh program") {
  Bench bench;
  CHECK(bench.reason("forwardagent", {"yes"}) == "forwardagent yes");
  CHECK(bench.reason("knownhostscommand", {"/bin/keys %H"}) == "knownhostscommand /bin/keys %H");
  CHECK(bench.reason("hostbasedauthentication", {"yes"}) == "hostbasedauthentication yes");
  CHECK(bench.reason("a-keyword-of-next-year", {"yes"}) == "a-keyword-of-next-year yes");
  bench.defaults["sessiontype"] = {"default"};
  CHECK(bench.reason("sessiontype", {"none"}) == "sessiontype none");
  CHECK(bench.reason("bindaddress", {"10.0.0.1"}) == "bindaddress 10.0.0.1");
  CHECK(bench.reason("revokedhostkeys", {"/keys/revoked"}) == "revokedhostkeys /keys/revoked");
  CHECK(bench.reason("identityfile", {"/keys/%C"}) == "identityfile /keys/%C");
  CHECK(bench.reason("identityfile", {"/keys/${NOT_SET}"}) == "identityfile /keys/${NOT_SET}");
  CHECK(bench.reason("identityfile", {"~bob/key"}) == "identityfile ~bob/key");
  // A name with a blank looks like two names.
  CHECK(bench.reason("userknownhostsfile", {"/a b /c"}) == "userknownhostsfile /a b /c");
  CHECK(bench.reason("proxycommand", {"nc %d"}) == "proxycommand nc %d");
  CHECK(bench.reason("hostname", {"fe80::7%eth0"}) == "hostname fe80::7%eth0");
}

TEST_CASE("ssh target: what changes nothing for one command is not a reason") {
  Bench bench;
  CHECK(bench.reason("serveraliveinterval", {"30"}).empty());
  CHECK(bench.reason("requesttty", {"force"}).empty());
  CHECK(bench.reason("sendenv", {"LANG", "LC_*"}).empty());
  CHECK(bench.reason("pkcs11provider", {"none"}).empty());
  CHECK(bench.reason("proxyusefdpass", {"yes"}).empty());
  CHECK(bench.reason("gssapiauthentication", {"yes"}).empty());
  CHECK(bench.reason("forwardx11", {"yes"}).empty());
  bench.variables["DISPLAY"] = ":0";
  CHECK(bench.reason("forwardx11", {"yes"}) == "forwardx11 yes");
  CHECK(bench.reason("remoteforward", {"80 [a]:80"}) == "remoteforward 80 [a]:80");
  bench.settings["clearallforwardings"] = {"yes"};
  CHECK(bench.reason("remoteforward", {"80 [a]:80"}).empty());
}

TEST_CASE("ssh target: certificates and open master connections are the ssh program's") {
  Bench bench;
  bench.settings["identityfile"] = {"/k/one"};
  bench.files = {{"/k/one", FileKind::kFile}};
  bench.settings["certificatefile"] = {"/k/two-cert.pub", "none"};
  CHECK(bench.resolve().program_reason.empty());
  bench.files["/k/two-cert.pub"] = FileKind::kFile;
  CHECK(bench.resolve().program_reason == "certificatefile /k/two-cert.pub");
  bench.settings.erase("certificatefile");
  bench.files["/k/one-cert.pub"] = FileKind::kFile;
  CHECK(bench.resolve().program_reason == "the certificate /k/one-cert.pub");
  bench.files.erase("/k/one-cert.pub");
  bench.settings["controlpath"] = {"/run/master"};
  CHECK(bench.resolve().program_reason.empty());
  bench.sockets.insert("/run/master");
  CHECK(bench.resolve().program_reason == "controlpath /run/master, where a connection is open");
}

TEST_CASE("ssh target: tokens and variables") {
  Bench bench;
  bench.variables["K"] = "/keys";
  bench.settings["hostname"] = {"10.0.0.9"};
  bench.settings["port"] = {"2222"};
  bench.settings["user"] = {"bob"};
  bench.settings["hostkeyalias"] = {"alias"};
  bench.settings["identityfile"] = {"~/%h-%n-%p-%r-%u", "${K}/%k-%i-%l-%L-%%-%j", "%d/x", "none"};
  const SshTarget target = bench.resolve();
  CHECK(target.keys.missing == Paths{"/home/ann/10.0.0.9-n1-2222-bob-ann",
                                     "/keys/alias-7-head.cluster-head-%-", "/home/ann/x"});
  CHECK(target.host_keys.known_as == "alias");
  CHECK(target.host_keys.is_alias);
}

TEST_CASE("ssh target: the agent that the configuration names") {
  Bench bench;
  bench.variables = {{"SSH_AUTH_SOCK", "/run/agent"}, {"OTHER", "/run/other"}};
  const auto agent = [&bench](const std::string& value) {
    bench.settings["identityagent"] = {value};
    return bench.resolve().keys.agent_socket;
  };
  CHECK(agent("SSH_AUTH_SOCK") == "/run/agent");
  CHECK(agent("$OTHER") == "/run/other");
  CHECK(agent("$NOT_SET").empty());
  CHECK(agent("${OTHER}.2") == "/run/other.2");
  CHECK(agent("~/agent") == "/home/ann/agent");
  CHECK(agent("none").empty());
}

TEST_CASE("ssh target: a configuration can forbid keys") {
  Bench bench;
  bench.settings["preferredauthentications"] = {"password,publickey"};
  CHECK(bench.resolve().keys.forbidden_by.empty());
  bench.settings["preferredauthentications"] = {"password"};
  CHECK(bench.resolve().keys.forbidden_by == "PreferredAuthentications password");
  bench.settings["pubkeyauthentication"] = {"false"};
  CHECK(bench.resolve().keys.forbidden_by == "PubkeyAuthentication no");
  // Then the ssh program has another method.
  bench.settings.erase("preferredauthentications");
  bench.settings["gssapiauthentication"] = {"yes"};
  CHECK(bench.resolve().keys.program_methods == Paths{"gssapi-with-mic"});
  CHECK(bench.resolve().program_reason == "gssapiauthentication yes");
  bench.has_ticket = false;
  CHECK(bench.resolve().keys.program_methods.empty());
  CHECK(bench.resolve().program_reason == "gssapiauthentication yes");
}

TEST_CASE("ssh target: host keys") {
  Bench bench;
  bench.settings["userknownhostsfile"] = {"/k/n1 /k/pipe"};
  bench.settings["globalknownhostsfile"] = {"none"};
  bench.settings["hashknownhosts"] = {"yes"};
  bench.files["/k/pipe"] = FileKind::kPipe;
  const auto checking = [&bench](const std::string& value) {
    bench.settings["stricthostkeychecking"] = {value};
    return bench.resolve().host_keys.checking;
  };
  const SshHostKeyPolicy policy = bench.resolve().host_keys;
  CHECK(policy.known_hosts_files == Paths{"/k/n1"});
  CHECK(policy.user_file_count == 1);
  CHECK(policy.hash_names);
  CHECK(policy.known_as == "n1");
  CHECK_FALSE(policy.is_alias);
  CHECK(checking("ask") == HostKeyChecking::kYes);
  CHECK(checking("true") == HostKeyChecking::kYes);
  CHECK(checking("accept-new") == HostKeyChecking::kAcceptNew);
  CHECK(checking("false") == HostKeyChecking::kNo);
}

TEST_CASE("ssh target: proxies") {
  Bench bench;
  const auto proxy = [&bench](const std::string& key, const std::string& value) {
    bench.settings[key] = {value};
    const Paths found = bench.resolve().route.proxy;
    bench.settings.erase(key);
    return found;
  };
  CHECK(proxy("proxycommand", "nc %h %p") == Paths{"/bin/bash", "--norc", "-c", "exec nc n1 22"});
  CHECK(proxy("proxycommand", "none").empty());
  CHECK(proxy("proxyjump", "gw:2200") ==
        Paths{"ssh", "-o", "BatchMode=yes", "-p", "2200", "-W", "[n1]:22", "--", "gw"});
  CHECK(proxy("proxyjump", "a,%r@[fe80::1]") ==
        Paths{"ssh", "-o", "BatchMode=yes", "-J", "a", "-W", "[n1]:22", "--", "ann@[fe80::1]"});
  bench.options.config_file = "/c";
  CHECK(proxy("proxyjump", "gw") ==
        Paths{"ssh", "-o", "BatchMode=yes", "-F", "/c", "-W", "[n1]:22", "--", "gw"});
}

TEST_CASE("ssh target: the route") {
  Bench bench;
  bench.settings["connecttimeout"] = {"90"};
  bench.settings["addressfamily"] = {"inet"};
  bench.settings["compression"] = {"yes"};
  const SshTarget target = bench.resolve();
  CHECK(target.route.connect_timeout == std::chrono::seconds(90));
  CHECK(target.route.address_family == "inet");
  CHECK(target.route.compression);
  CHECK(target.program_reason.empty());
  bench.settings["connecttimeout"] = {"0"};
  CHECK_FALSE(bench.resolve().route.connect_timeout);
}

}  // namespace
}  // namespace hora::launcher
