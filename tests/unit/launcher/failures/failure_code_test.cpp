// SPDX-License-Identifier: Apache-2.0
#include "launcher/failures/failure_code.h"

#include <set>

#include "tests/support/catch.h"

using namespace hora::launcher;

TEST_CASE("the limit of open files that was reached is the one to raise") {
  CHECK(failure::open_files_advice(EMFILE, "here") ==
        "raise the limit of open files here (ulimit -n)");
  CHECK(failure::open_files_advice(ENFILE, "there") ==
        "raise the limit of open files there (sysctl fs.file-max)");
  for (const int other : {0, ENOSPC, ENOENT})
    CHECK(failure::open_files_advice(other, "here").empty());
}

namespace hora::launcher {
namespace {

TEST_CASE("Every failure code has a cause, a fix and an exit code") {
  std::set<std::string_view> seen;
  for (const FailureClass& row : failure_classes()) {
    INFO(row.code);
    CHECK(seen.insert(row.code).second);
    CHECK_FALSE(row.title.empty());
    CHECK_FALSE(row.cause.empty());
    CHECK_FALSE(row.fix.empty());
  }
  for (const std::string_view code : {failure::kUsage,          failure::kResolve,
                                      failure::kConnect,        failure::kConnectTimeout,
                                      failure::kHostKeyUnknown, failure::kHostKeyChanged,
                                      failure::kSshAuth,        failure::kSshBusy,
                                      failure::kSshProtocol,    failure::kRemoteShell,
                                      failure::kCache,          failure::kAgent,
                                      failure::kProtocol,       failure::kCwd,
                                      failure::kShip,           failure::kNetwork,
                                      failure::kStartTimeout,   failure::kTimeout,
                                      failure::kHostLost,       failure::kRsh,
                                      failure::kRendezvous,     failure::kInternal,
                                      failure::kMissingFeature}) {
    INFO(code);
    CHECK(seen.count(code) == 1);
  }
  CHECK(exit_code_of_failure("E_TIMEOUT") == 124);
  CHECK(exit_code_of_failure("E_START_TIMEOUT") == 124);
  CHECK(exit_code_of_failure("E_USAGE") == 2);
  CHECK(exit_code_of_failure("E_CONNECT") == 125);
  CHECK(exit_code_of_failure("E_UNHEARD_OF") == 125);
}

}  // namespace
}  // namespace hora::launcher
