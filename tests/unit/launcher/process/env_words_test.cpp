// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/env_words.h"

#include "launcher/process/captured_run.h"
#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

using Words = std::vector<std::string>;

TEST_CASE("env words: variables in front of a command") {
  const auto found =
      without_env({"env", "-u", "GONE", "A=1", "B=x=y", "srun", "--export=C=2", "D=3"});
  CHECK(found.argv == Words{"srun", "--export=C=2", "D=3"});
  CHECK(found.unset == Words{"GONE"});
  CHECK(found.set == Words{"A=1", "B=x=y"});
  CHECK(is_replaced(found, "GONE=1"));
  CHECK(is_replaced(found, "A=0"));
  CHECK_FALSE(is_replaced(found, "AA=0"));
  CHECK_FALSE(is_replaced(found, "C=0"));
}

TEST_CASE("env words: what env does besides is left to it") {
  for (const Words& words :
       {Words{"srun", "A=1"}, Words{"env"}, Words{"env", "A=1"}, Words{"env", "-i", "true"},
        Words{"env", "-u", "A"}, Words{"env", "--", "true"}, Words{"env", "PATH=/opt", "true"},
        Words{"env", "-u", "PATH", "true"}, Words{"/usr/bin/env", "A=1", "true"}}) {
    const auto found = without_env(words);
    CHECK(found.argv == words);
    CHECK(found.set.empty());
    CHECK(found.unset.empty());
  }
}

TEST_CASE("env words: a child has the variables that env would give it") {
  const auto said = run_captured(
      {"env", "-u", "HOME", "PATH_OF=1", "sh", "-c", "echo ${HOME-none} $PATH_OF ${PATH:+path}"},
      std::chrono::milliseconds(60'000));
  REQUIRE(said);
  CHECK(said->output == "none 1 path\n");
}

}  // namespace
}  // namespace hora::launcher
