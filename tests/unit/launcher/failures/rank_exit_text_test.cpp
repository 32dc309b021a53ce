// SPDX-License-Identifier: Apache-2.0
#include "launcher/failures/rank_exit_text.h"

#include <signal.h>

#include <cerrno>

#include "tests/support/catch.h"

using namespace hora::launcher;

namespace {

RankExit failed_at(SpawnStage stage, int errnum, std::string program = {}) {
  RankExit exit;
  exit.stage = stage;
  exit.errnum = errnum;
  exit.program = std::move(program);
  return exit;
}

}  // namespace

TEST_CASE("a rank that ran: its code or its signal") {
  RankExit exit;
  exit.exit_code = 3;
  CHECK(how_it_ended(exit) == "exited with code 3");
  CHECK(start_failure_text(exit).empty());
  exit.exit_code = 0;
  exit.signal = SIGSEGV;
  exit.core_dumped = true;
  CHECK(how_it_ended(exit) == "was killed by SIGSEGV (core dumped)");
}

TEST_CASE("a rank that was not started: the step, the program, the reason") {
  CHECK(how_it_ended(failed_at(SpawnStage::kSearch, 0, "x")) ==
        "could not be started: executing x: not found in PATH");
  CHECK(start_failure_text(failed_at(SpawnStage::kSearch, EACCES, "/x")) ==
        "executing /x: Permission denied");
  CHECK(start_failure_text(failed_at(SpawnStage::kClone, EAGAIN)) ==
        "creating a process: Resource temporarily unavailable");
  CHECK(start_failure_text(failed_at(SpawnStage::kPipes, EMFILE)) ==
        "creating a pipe: Too many open files");
  CHECK(start_failure_text(failed_at(SpawnStage::kExecute, E2BIG, "/x"))
            .find("larger than this machine allows") != std::string::npos);
  // A name of the program is a host's word, and shown on a terminal.
  CHECK(start_failure_text(failed_at(SpawnStage::kExecute, EACCES, "/x\x1b[2J")).find('\x1b') ==
        std::string::npos);
}

TEST_CASE("a missing interpreter is named") {
  RankExit exit = failed_at(SpawnStage::kInterpreter, ENOENT, "/x");
  CHECK(start_failure_text(exit) == "executing /x: its interpreter does not exist");
  exit.interpreter = "/no/python";
  CHECK(start_failure_text(exit) == "executing /x: its interpreter '/no/python' does not exist");
  exit.interpreter = "/bin/sh\r";
  CHECK(start_failure_text(exit).find("carriage return") != std::string::npos);
  CHECK(start_failure_text(failed_at(SpawnStage::kInterpreter, ENOEXEC, "/x"))
            .find("longer than the kernel reads") != std::string::npos);
}
