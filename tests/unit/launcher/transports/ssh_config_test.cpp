// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/ssh_config.h"

#include <unistd.h>

#include <fstream>
#include <map>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/launcher/transports/shell_run.h"

namespace hora::launcher {
namespace {

using test::run_program;
using test::TemporaryDirectory;

SshConfig read(const std::string& text, const std::string& host, const std::string& user = "") {
  SshConfig config;
  read_ssh_config(text, {host, user, "local"}, nullptr, config);
  return config;
}

TEST_CASE("the first value stays, and Host blocks choose") {
  const std::string text =
      "# a comment\n"
      "Host gpu*  !gpu9\n"
      "  HostName %h.cluster\n"
      "\tPort=2222\n"
      "  user = \"alice\"\n"
      "Host *\n"
      "  Port 22\n"
      "  User bob\n"
      "  IdentityFile ~/.ssh/one\n"
      "  IdentityFile \"/keys/two words\"\n";
  const auto gpu = read(text, "gpu1");
  CHECK(gpu.hostname == "%h.cluster");
  CHECK(gpu.port == 2222);
  CHECK(gpu.user == "alice");
  CHECK(gpu.identity_files == std::vector<std::string>{"~/.ssh/one", "/keys/two words"});
  CHECK(read(text, "GPU2").port == 2222);
  const auto other = read(text, "gpu9");
  CHECK_FALSE(other.hostname);
  CHECK(other.port == 22);
  CHECK(other.user == "bob");
}

TEST_CASE("Match knows hosts and users, and skips what it does not know") {
  const std::string text =
      "Match originalhost b,c user alice\n Port 1\n"
      "Match exec \"touch /tmp/never\"\n Port 2\n"
      "Match host real\n Port 3\n"
      "Match !localuser local\n Port 4\n"
      "Match all\n Port 5\n";
  CHECK(read(text, "b", "alice").port == 1);
  CHECK(read(text, "b").port == 5);
  CHECK(read("HostName real\n" + text, "x").port == 3);
}

TEST_CASE("What matters and is not followed is noted, once, and only where it says something") {
  using Names = std::vector<std::string>;
  CHECK(read("KnownHostsCommand none\nCanonicalizeHostname no\nGSSAPIAuthentication yes\nSendEnv "
             "LANG\n",
             "x")
            .not_followed.empty());
  CHECK(read("knownhostscommand /bin/keys %H\nKnownHostsCommand /other\nProxyUseFdpass yes\n", "x")
            .not_followed == Names{"KnownHostsCommand", "ProxyUseFdpass"});
  CHECK(read("CanonicalizeHostname no\nHost *\n CanonicalizeHostname yes\n", "x")
            .not_followed.empty());
  CHECK(read("Host y\n CertificateFile ~/cert\n", "x").not_followed.empty());
  CHECK(read("Host y\n CertificateFile ~/cert\n", "y").not_followed == Names{"CertificateFile"});
  CHECK(read("Match exec \"true\"\n User other\n", "x").not_followed == Names{"Match exec"});
  CHECK(read("Match host y exec \"true\"\n User other\n", "x").not_followed.empty());
  // The last reading of a file is the one there is; names are never completed.
  CHECK(read("Match final all\n Port 7\n", "x").port == 7);
  CHECK(read("Match canonical all\n Port 7\n", "x").not_followed == Names{"Match canonical"});
  CHECK_FALSE(read("Match canonical all\n Port 7\n", "x").port);
  for (const UnfollowedKeyword& each : unfollowed_keywords()) CHECK_FALSE(each.meaning.empty());
}

TEST_CASE("Where connections come from, and what may be offered") {
  const auto config = read(
      "BindAddress 10.0.0.7\nBindInterface eth1\nRevokedHostKeys "
      "/etc/revoked\nPubkeyAuthentication no\n"
      "PreferredAuthentications Publickey,password\nPubkeyAcceptedAlgorithms ssh-ed25519\n",
      "x");
  CHECK(config.bind_address == "10.0.0.7");
  CHECK(config.bind_interface == "eth1");
  CHECK(config.revoked_host_keys == "/etc/revoked");
  CHECK(config.pubkey_authentication == false);
  CHECK(config.preferred_authentications == "publickey,password");
  CHECK(config.pubkey_algorithms == "ssh-ed25519");
  CHECK(config.not_followed.empty());
}

TEST_CASE("A port that is none says nothing") {
  CHECK(read("Port 70000\nPort 0\nPort x\nPort 2222\n", "b").port == 2222);
}

TEST_CASE("Include reads other files in place, at most so deep") {
  SshConfig config;
  std::vector<std::string> asked;
  const SshConfigIncluder include = [&](const std::string& pattern) {
    asked.push_back(pattern);
    return std::vector<std::string>{"Host b\n Port 7\n"};
  };
  read_ssh_config("Include conf.d/*.conf other\nPort 8\n", {"b", "", ""}, include, config);
  CHECK(config.port == 7);
  CHECK(asked == std::vector<std::string>{"conf.d/*.conf", "other"});

  int depth = 0;
  const SshConfigIncluder endless = [&](const std::string&) {
    ++depth;
    return std::vector<std::string>{"Include again\n"};
  };
  SshConfig ignored;
  read_ssh_config("Include again\n", {"b", "", ""}, endless, ignored);
  CHECK(depth == 16);
}

TEST_CASE("Files that include each other again and again are given up") {
  int read = 0;
  const SshConfigIncluder twice = [&](const std::string&) {
    ++read;
    return std::vector<std::string>(2, "Include again again\nPort 7\n");
  };
  SshConfig config;
  read_ssh_config("Include again\nPort 8\n", {"b", "", ""}, twice, config);
  CHECK(config.too_many_included);
  CHECK(read <= 1024);

  SshConfig many;
  read_ssh_config(
      "Include *\n", {"b", "", ""},
      [](const std::string&) { return std::vector<std::string>(1000, "Port 7\n"); }, many);
  CHECK(!many.too_many_included);
  CHECK(many.port == 7);
}

TEST_CASE("proxies, known hosts and the rest") {
  const auto config = read(
      "ProxyCommand ssh -W \"%h:%p\" gate # not a comment\nProxyJump other\n"
      "UserKnownHostsFile /a \"/b c\"\nStrictHostKeyChecking accept-new\nIdentitiesOnly yes\n"
      "IdentityAgent none\nConnectTimeout 7\nAddressFamily INET6\nHostKeyAlias alias\n",
      "b");
  CHECK(config.proxy_command == "ssh -W \"%h:%p\" gate # not a comment");
  CHECK_FALSE(config.proxy_jump);
  CHECK(config.user_known_hosts_files == std::vector<std::string>{"/a", "/b c"});
  CHECK(config.host_key_checking == HostKeyChecking::kAcceptNew);
  CHECK(config.identities_only == true);
  CHECK(config.identity_agent == "none");
  CHECK(config.connect_timeout_s == 7);
  CHECK(config.address_family == "inet6");
  CHECK(config.host_key_alias == "alias");
  CHECK(read("ProxyJump a,b\nProxyCommand x\n", "h").proxy_jump == "a,b");
  CHECK_FALSE(read("ProxyJump a\nProxyCommand x\n", "h").proxy_command);
  CHECK(read("IdentityFile none\n", "h").identity_files.empty());
  CHECK(read("Port what\nPort 99\n", "h").port == 99);
  CHECK(read("Host\nPort 5\nMatch\nPort 6\n", "h") == SshConfig{});
}

TEST_CASE("patterns") {
  CHECK(matches_pattern("abc", "a?c"));
  CHECK(matches_pattern("abc", "*"));
  CHECK(matches_pattern("", "*"));
  CHECK(matches_pattern("a.b.c", "a*c"));
  CHECK(matches_pattern("aXbXc", "*X*X*"));
  CHECK_FALSE(matches_pattern("abc", "ab"));
  CHECK_FALSE(matches_pattern("abc", "a?"));
  CHECK_FALSE(matches_pattern("", "?"));
  CHECK_FALSE(matches_pattern(std::string(60, 'a'), std::string("*a*a*a*a*a*a*a*a*a*b")));
}

TEST_CASE("tokens") {
  const SshTokens tokens{"real", "alias", "22", "root", "me", "/home/me"};
  CHECK(expand_tokens("~/.ssh/%h_%n_%p_%r_%u%%", tokens) == "/home/me/.ssh/real_alias_22_root_me%");
  CHECK(expand_tokens("%d/x%z%", tokens) == "/home/me/x%z%");
  CHECK(expand_tokens("~other/x", tokens) == "~other/x");
}

// --- what OpenSSH makes of the same text ---------------------------------------------------------

std::map<std::string, std::string> ask_openssh(const std::string& path, const std::string& host) {
  const auto run = run_program({"ssh", "-G", "-F", path, host});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  std::map<std::string, std::string> values;
  std::istringstream lines(run.out);
  for (std::string line; std::getline(lines, line);) {
    const auto blank = line.find(' ');
    auto& value = values[line.substr(0, blank)];
    value += (value.empty() ? "" : "|") + line.substr(std::min(blank + 1, line.size()));
  }
  return values;
}

TEST_CASE("OpenSSH reads the same out of the same text") {
  if (::access("/usr/bin/ssh", X_OK) != 0) return;
  const std::vector<std::string> texts = {
      "Host a b\n Port 1\nHost *\n Port 2\n",
      "Host !a *\n Port 1\nHost *\n Port 2\n",
      "Port 4\nHost a\nPort 5\nUser x\nHost b\nUser y\nMatch all\nUser z\n",
      "Match host a\nPort 6\nMatch originalhost b\nPort 7\nMatch user carl\nPort 8\n",
      "User carl\nMatch user carl host a,b\nPort 9\nMatch !host a\nHostName other\n",
      "Host a*\nHostName real.example\nMatch host real.example\nPort 10\n",
      "host=a\nport = 11\nUSER\t\"dan\"\nHost \"b\"\nport=12\n",
      "Host ab? a\nPort 13\nHost 1?.2.*\nPort 14\n",
      "IdentityFile /x/one\nIdentityFile /x/two\nHost a\nIdentityFile /x/three\n",
      "StrictHostKeyChecking accept-new\nConnectTimeout 5\nIdentitiesOnly yes\n",
      "ProxyCommand  nc  %h   %p\nProxyJump never\n",
      "ProxyJump one,two\n",
      "UserKnownHostsFile /x/k1 \"/x/k2\"\nGlobalKnownHostsFile /x/g\n",
      "HostKeyAlias shared\nAddressFamily inet\n",
      "# nothing\n\n   # indented\nPort 15 # a trailing comment\n"};
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/config";
  for (const auto& text : texts) {
    std::ofstream(path) << text;
    for (const std::string host : {"a", "b", "abc", "10.2.3.4", "zz"}) {
      INFO(text << "\nhost " << host);
      auto theirs = ask_openssh(path, host);
      SshConfig ours;
      const auto id = run_program({"id", "-un"}).out;
      read_ssh_config(text, {host, "", id.substr(0, id.find('\n'))}, nullptr, ours);
      CHECK(std::to_string(ours.port.value_or(22)) == theirs["port"]);
      if (ours.user) CHECK(*ours.user == theirs["user"]);
      CHECK(ours.hostname.value_or(host) == theirs["hostname"]);
      if (!ours.identity_files.empty()) {
        std::string files;
        for (const auto& file : ours.identity_files) files += (files.empty() ? "" : "|") + file;
        CHECK(files == theirs["identityfile"]);
      } else {
        CHECK(theirs["identityfile"].find("/x/") == std::string::npos);
      }
      CHECK((ours.identities_only.value_or(false) ? "yes" : "no") == theirs["identitiesonly"]);
      CHECK((ours.host_key_checking == HostKeyChecking::kAcceptNew) ==
            (theirs["stricthostkeychecking"] == "accept-new"));
      CHECK(ours.proxy_jump.value_or("") == theirs["proxyjump"]);
      CHECK(ours.proxy_command.has_value() == (theirs.count("proxycommand") == 1));
      if (ours.proxy_command) CHECK(*ours.proxy_command == theirs["proxycommand"]);
      CHECK(ours.host_key_alias.value_or("") == theirs["hostkeyalias"]);
      if (ours.address_family) CHECK(*ours.address_family == theirs["addressfamily"]);
      if (ours.connect_timeout_s)
        CHECK(std::to_string(*ours.connect_timeout_s) == theirs["connecttimeout"]);
      if (ours.user_known_hosts_files) CHECK(theirs["userknownhostsfile"] == "/x/k1 /x/k2");
    }
  }
}

}  // namespace
}  // namespace hora::launcher
