// SPDX-License-Identifier: Apache-2.0
#include "launcher/failures/exit_code.h"

#include <set>

#include "launcher/failures/failure_code.h"
#include "tests/support/catch.h"

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
