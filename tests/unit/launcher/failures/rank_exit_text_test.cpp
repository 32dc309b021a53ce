// SPDX-License-Identifier: Apache-2.0
#include "launcher/failures/rank_exit_text.h"

#include <signal.h>

#include <cerrno>

#include "launcher/failures/failure_code.h"
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

TEST_CASE("a missing loader is named, with the C library that it belongs to") {
  RankExit exit = failed_at(SpawnStage::kInterpreter, ENOENT, "/x");
  exit.code = failure::kLoader;
  exit.interpreter = "/lib/ld-musl-x86_64.so.1";
  CHECK(start_failure_text(exit) ==
        "executing /x: its dynamic loader '/lib/ld-musl-x86_64.so.1' does not exist: it was built "
        "for musl, as of Alpine Linux");
  const auto ending = [&exit](const char* loader) {
    exit.interpreter = loader;
    const std::string text = start_failure_text(exit);
    return text.substr(text.rfind("built for ") + 10);
  };
  CHECK(ending("/lib64/ld-linux-x86-64.so.2") == "glibc");
  CHECK(ending("/lib/ld-linux-aarch64.so.1") == "glibc");
  CHECK(ending("/lib/ld-linux.so.2") == "glibc and 32-bit x86");
  CHECK(ending("/lib/ld-linux-armhf.so.3") == "glibc and 32-bit ARM");
  CHECK(ending("/nix/store/x-glibc/lib/ld-linux-x86-64.so.2") == "another system's folders");
}
