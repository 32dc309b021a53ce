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

TEST_CASE("-x with '*' passes on every variable whose name begins so") {
  const Variables here{
      {"NCCL_A", "1"}, {"NCCL_B", "2"}, {"NCC", "3"}, {"CUDA_VISIBLE_DEVICES", "0"}};
  const auto job = parsed<Launch>({"-np", "1", "-x", "NCCL_*", "-x", "CUDA_*", "x"}, here);
  CHECK(job.warnings.empty());
  CHECK(job.job.variables.size() == 3);
  CHECK(variable(job.job, "NCCL_B") == "2");
  CHECK(variable(job.job, "CUDA_VISIBLE_DEVICES") == "0");
  // Of a name that comes twice the last value counts, also that of here.
  CHECK(variable(job_of({"-np", "1", "-x", "NCCL_A=7", "-x", "NCCL_*", "x"}, here), "NCCL_A") ==
        "1");
  CHECK(parsed<Launch>({"-np", "1", "-x", "FOO_*", "x"}, here).warnings ==
        Words{"-x: no variable FOO_* is set here, so it is not passed on"});
  for (const char* text : {"*", "FOO*BAR", "FOO_*=1", "*_A"}) {
    CHECK(error_of({"-np", "1", "-x", text, "x"}, here) ==
          "-x: expected a name, or the first letters of names and '*' such as NCCL_*, found '" +
              std::string(text) + "'");
  }
}

}  // namespace
}  // namespace hora::launcher
