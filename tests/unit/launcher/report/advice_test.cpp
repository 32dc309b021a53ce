// SPDX-License-Identifier: Apache-2.0
#include "launcher/report/advice.h"

#include <cerrno>

#include "launcher/failures/failure_code.h"
#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

std::string advice_for(std::string_view code, const std::string& program, bool has_it = false) {
  RankExit exit;
  exit.code = code;
  exit.program = program;
  return start_advice(exit, has_it);
}

TEST_CASE("A program that was typed out of habit is distinguished from one that is missing") {
  for (const auto& [program, advice] : std::vector<std::pair<std::string, std::string>>{
           {"train.py",
            "'train.py' is a Python script; start it with: horarun ... python3 train.py"},
           {"python3 train.py",
            "Remove the quotes around the program: horarun ... python3 train.py"},
           {"cd /data && python3 train.py",
            "A line for the shell needs one: horarun ... sh -c 'cd /data && python3 train.py'"},
           {"OMP_NUM_THREADS=2",
            "Set variables of the ranks with -x: horarun ... -x OMP_NUM_THREADS=2 PROGRAM"},
           {"2=1", "Install it on the host"},
           {"cd", "'cd' is a command of the shell, not a program: horarun ... sh -c 'LINE'"},
           {"doctor", "'doctor' is a verb of horarun only as the first word: horarun doctor ..."},
           {"./train.py", "Install it on the host"},
           {"./my folder/a", "Install it on the host"},
           {"trainer", "Install it on the host"}}) {
    INFO(program);
    CHECK(
        advice_for(failure::kProgramNotFound, program).find("  [E_PROGRAM_NOT_FOUND] " + advice) ==
        0);
  }
  CHECK(advice_for(failure::kProgramNotFound, "run.sh", true) ==
        "  [E_PROGRAM_NOT_FOUND] 'run.sh' is in the working directory, not in PATH: horarun ... "
        "./run.sh\n");
  CHECK(advice_for(failure::kProgramNotFound, "train.py", true).find("python3 train.py") !=
        std::string::npos);
  CHECK(advice_for(failure::kProgramNotFound, "python").find("python3.\n") != std::string::npos);
  CHECK(advice_for(failure::kNotExecutable, "./train.py").find("horarun ... python3 ./train.py.") !=
        std::string::npos);
  CHECK(advice_for(failure::kNotExecutable, "./a.out").find("  [E_NOT_EXECUTABLE] Run chmod") == 0);
  CHECK(advice_for("E_UNKNOWN", "x").empty());
}

TEST_CASE("A folder needs no chmod") {
  RankExit exit;
  exit.code = failure::kNotExecutable;
  exit.program = "/";
  exit.errnum = EISDIR;
  CHECK(start_advice(exit, false) ==
        "  [E_NOT_EXECUTABLE] '/' is a folder: name a program in it.\n");
}

TEST_CASE("Too many arguments are not reported as a fault of the program's file") {
  RankExit exit;
  exit.code = failure::kNotExecutable;
  exit.program = "/usr/bin/true";
  exit.stage = SpawnStage::kExecute;
  exit.errnum = E2BIG;
  const std::string advice = start_advice(exit, false);
  CHECK(advice.find("  [E_NOT_EXECUTABLE] Give the program a file instead of long") == 0);
  CHECK(advice.find("chmod") == std::string::npos);
}

}  // namespace
}  // namespace hora::launcher
