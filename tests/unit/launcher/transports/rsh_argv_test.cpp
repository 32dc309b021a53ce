// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/rsh_argv.h"

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

using Words = std::vector<std::string>;

Host host(std::string name, std::string user = "") {
  return {std::move(name), std::move(user), {}};
}

Words argv(const Words& command, const Host& where) {
  auto result = rsh_argv(command, where, "LINE");
  REQUIRE(result);
  return *result;
}

TEST_CASE("a command like ssh gets the host and the line") {
  CHECK(argv({"ssh", "-q"}, host("b")) == Words{"ssh", "-q", "b", "LINE"});
  CHECK(argv({"ssh"}, host("b", "me")) == Words{"ssh", "me@b", "LINE"});
  CHECK(argv({"/opt/bin/myrsh"}, host("b")) == Words{"/opt/bin/myrsh", "b", "LINE"});
  CHECK(argv({"ssh", "exec"}, host("b")) == Words{"ssh", "exec", "b", "LINE"});
}

TEST_CASE("a command that takes an argv gets a shell to run the line") {
  CHECK(argv({"kubectl", "exec", "-i"}, host("pod-0")) ==
        Words{"kubectl", "exec", "-i", "pod-0", "--", "sh", "-c", "LINE"});
  CHECK(argv({"/usr/bin/oc", "exec", "-i", "-n", "ns"}, host("p")) ==
        Words{"/usr/bin/oc", "exec", "-i", "-n", "ns", "p", "--", "sh", "-c", "LINE"});
  CHECK(argv({"docker", "exec", "-i"}, host("c")) ==
        Words{"docker", "exec", "-i", "c", "sh", "-c", "LINE"});
  CHECK(argv({"podman", "exec", "-i", "{host}"}, host("c")) ==
        Words{"podman", "exec", "-i", "c", "sh", "-c", "LINE"});
}

TEST_CASE("placeholders say where things go") {
  CHECK(argv({"x", "{host}", "{command}"}, host("b")) == Words{"x", "b", "LINE"});
  CHECK(argv({"x", "--on={}"}, host("b")) == Words{"x", "--on=b", "LINE"});
  CHECK(argv({"x", "-l", "{user}", "{host}"}, host("b", "me")) ==
        Words{"x", "-l", "me", "b", "LINE"});
  CHECK(argv({"x", "{target}:22"}, host("b", "me")) == Words{"x", "me@b:22", "LINE"});
  CHECK(argv({"x", "{target}"}, host("b")) == Words{"x", "b", "LINE"});
  CHECK(argv({"docker", "exec", "-u", "{user}", "-i"}, host("c", "me")) ==
        Words{"docker", "exec", "-u", "me", "-i", "c", "sh", "-c", "LINE"});
  CHECK(argv({"sh", "-c", "{command}"}, host("b")) == Words{"sh", "-c", "LINE", "b"});
  CHECK(argv({"x", "{unknown}", "{"}, host("b")) == Words{"x", "{unknown}", "{", "b", "LINE"});
}

TEST_CASE("what cannot work is refused") {
  CHECK_FALSE(rsh_argv({}, host("b"), "LINE"));
  CHECK_FALSE(rsh_argv({""}, host("b"), "LINE"));
  CHECK_FALSE(rsh_argv({"x", "{user}"}, host("b"), "LINE"));
  CHECK_FALSE(rsh_argv({"docker", "exec", "-i"}, host("c", "me"), "LINE"));
  CHECK_FALSE(rsh_argv({"ssh"}, host("-oProxyCommand=evil"), "LINE"));
  CHECK_FALSE(rsh_argv({"ssh"}, host("b", "-x"), "LINE"));
}

}  // namespace
}  // namespace hora::launcher
