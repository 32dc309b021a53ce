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

TEST_CASE("Codes are explained under every spelling") {
  const std::string text = explain("E_SSH_AUTH").value();
  CHECK(text.find("E_SSH_AUTH: a host refused the login (exit code 125)") == 0);
  CHECK(text.find("Cause: ") != std::string::npos);
  CHECK(text.find("Fix:   ") != std::string::npos);
  CHECK(explain("ssh_auth").value() == text);
  CHECK(explain("xid79").value().find("Xid 79: the GPU has fallen off the bus") == 0);
  CHECK(explain("Xid 79").value() == explain("xid79").value());
  CHECK_FALSE(explain("xid"));
  CHECK(
      explain("xid 9999").error().message.find("no Xid '9999' is known here; NVIDIA's catalogue") !=
      std::string::npos);
  CHECK(explain("ssh-auth").value() == text);
  CHECK(explain("137").value().find("signal 9") != std::string::npos);
  CHECK(explain("137").value() ==
        "exit code 137: the rank that failed first was ended by signal 9 (SIGKILL), often by the "
        "kernel's out-of-memory killer (dmesg on that host)\n");
  CHECK(explain("SIGKILL").value() == explain("137").value());
  CHECK(explain("sigterm").value().find("(SIGTERM)\n") != std::string::npos);
  CHECK(explain("170").value().find("signal 42\n") != std::string::npos);
  CHECK_FALSE(explain("SIGNONE"));
  CHECK(explain("127").value().find("does not exist") != std::string::npos);
  CHECK(explain("3").value().find("program's own") != std::string::npos);
  CHECK(explain("E_SSH_AUHT").error().message.find("did you mean E_SSH_AUTH?") !=
        std::string::npos);
  CHECK(explain("nonsense").error().code == ErrorCode::kUsage);
  const std::string all = explain("").value();
  for (const FailureClass& row : failure_classes()) CHECK(all.find(row.code) != std::string::npos);
}

}  // namespace
}  // namespace hora::launcher
