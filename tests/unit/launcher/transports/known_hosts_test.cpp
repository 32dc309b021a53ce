// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/known_hosts.h"

#include "launcher/transports/ssh_authentication.h"
#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

TEST_CASE("a key is revoked whatever host the @revoked line names") {
  const std::string text = "n1 ssh-x AAAA\n@revoked other ssh-x BBBB\n# @revoked * ssh-x CCCC\n";
  CHECK(marks_as_revoked(text, "n1 ssh-x BBBB"));
  CHECK_FALSE(marks_as_revoked(text, "n1 ssh-x AAAA"));
  CHECK_FALSE(marks_as_revoked(text, "n1 ssh-x CCCC"));
  CHECK_FALSE(marks_as_revoked(text, ""));
}

TEST_CASE("a list of revoked keys clears only what it can be searched for") {
  CHECK(look_up_revoked("ssh-x AAAA\n", "n1 ssh-x BBBB") == Revocation::kNotRevoked);
  CHECK(look_up_revoked("ssh-x AAAA\n", "n1 ssh-x AAAA") == Revocation::kRevoked);
  CHECK(look_up_revoked("ssh-x AAAA\n", "") == Revocation::kRevoked);
  CHECK(look_up_revoked("SSHKRL\n\0", "n1 ssh-x BBBB") == Revocation::kUnreadable);
}

TEST_CASE("the agent is tried first, unless only the named keys count") {
  using Identities = std::vector<std::string>;
  SshKeys keys;
  keys.files = {"a", "b"};
  CHECK(identities_to_try(keys) == Identities{"a", "b"});
  keys.agent_socket = "/run/agent";
  CHECK(identities_to_try(keys) == Identities{"", "a", "b"});
  keys.identities_only = true;
  CHECK(identities_to_try(keys) == Identities{"a", "b"});
}

}  // namespace
}  // namespace hora::launcher
