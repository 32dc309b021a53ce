// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/environment_options.h"

#include "tests/support/catch.h"
#include "tests/unit/launcher/options/parsing.h"

namespace hora::launcher {
namespace {

std::string variable(const JobSpec& job, std::string_view name) {
  for (const auto& each : job.variables) {
    if (each.name == name) return each.value;
  }
  return "unset";
}

TEST_CASE("Variables for the ranks") {
  const Variables here{{"HERE", "value"}};
  const JobSpec job =
      job_of({"-np", "1", "-x", "A=b=c", "--env", "HERE", "-x=D=", "-x", "A=2", "x"}, here);
  CHECK(variable(job, "A") == "2");
  CHECK(variable(job, "HERE") == "value");
  CHECK(variable(job, "D").empty());
  CHECK(job.variables.size() == 3);

  const JobSpec both = job_of({"-np", "1", "-x", "A=3", "--env-file", "variables", "x"}, here);
  CHECK(variable(both, "A") == "3");  // wherever it stands
  CHECK(variable(both, "HERE") == "value");
  CHECK(variable(both, "EMPTY").empty());
  CHECK(variable(both, "B") == " 'x' ");

  const auto warned = parsed<Launch>({"-np", "1", "-x", "ABSENT", "--env-file", "variables", "x"});
  CHECK(warned.warnings == Words{"variables:4: HERE is not set here, so it is not passed on",
                                 "-x: ABSENT is not set here, so it is not passed on"});
  CHECK(error_of({"-np", "1", "-x", "=1", "x"}) == "-x: expected VAR or VAR=VALUE");
  CHECK(error_of({"-np", "1", "-x", "RANK=1", "x"}).find("-x: RANK cannot be set") == 0);
  CHECK(error_of({"-np", "1", "--env", "A B", "x"}).find("a blank in the name 'A B'") !=
        std::string::npos);
  CHECK(error_of({"-np", "1", "--env-file", "bad variables", "x"}).find("bad variables:2:1: ") ==
        0);
  CHECK(error_of({"-np", "1", "--env-file", "none", "x"}) ==
        "--env-file: opening none: No such file or directory");
}

}  // namespace
}  // namespace hora::launcher
