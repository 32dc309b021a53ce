// SPDX-License-Identifier: Apache-2.0
#include "launcher/failures/explain.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "launcher/failures/failure_code.h"
#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

TEST_CASE("Every code of a finding is explained, and no other") {
  std::set<std::string> found;
  const std::regex code("\"(D_[A-Z_]+)\"");
  for (const auto& entry :
       std::filesystem::directory_iterator(HORA_SOURCE_DIR "/launcher/doctor")) {
    const std::string name = entry.path().filename();
    if (!name.ends_with(".cpp")) continue;
    std::ifstream file(entry.path());
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    for (std::sregex_iterator at(text.begin(), text.end(), code), end; at != end; ++at) {
      found.insert((*at)[1]);
    }
  }
  std::set<std::string> explained;
  for (const FindingClass& row : finding_classes()) explained.emplace(row.code);
  CHECK(found == explained);
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
  CHECK(explain("E_SSH").error().message.find("did you mean one of E_SSH_") != std::string::npos);
  CHECK(explain("ssh-au").error().message.find("did you mean E_SSH_AUTH?") != std::string::npos);
  CHECK(explain("E").error().message.find("one of") == std::string::npos);
  CHECK(explain("kill").value() == explain("137").value());
  CHECK(explain("D_SHN").error().message.find("did you mean D_SHM?") != std::string::npos);
  CHECK(explain("nonsense").error().code == ErrorCode::kUsage);
  const std::string of_doctor = explain("D_SHM").value();
  CHECK(of_doctor.find("D_SHM, found by horarun doctor\n\nCause: ") == 0);
  CHECK(explain("d-shm").value() == of_doctor);
  CHECK(explain("shm").value() == of_doctor);
  const std::string all = explain("").value();
  for (const FailureClass& row : failure_classes()) CHECK(all.find(row.code) != std::string::npos);
}

TEST_CASE("Every word that is offered is explained") {
  const auto words = explained_words();
  for (const std::string& word : words) {
    INFO(word);
    CHECK(explain(word));
  }
  for (const std::string_view word : {"E_SSH_AUTH", "D_SHM", "125", "SIGKILL", "xid79"}) {
    INFO(word);
    CHECK(std::count(words.begin(), words.end(), word) == 1);
  }
}

}  // namespace
}  // namespace hora::launcher
