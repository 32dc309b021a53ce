// SPDX-License-Identifier: Apache-2.0
#include "launcher/doctor/finding_classes.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "tests/support/catch.h"

namespace hora::launcher::doctor {
namespace {

TEST_CASE("Every code of a finding is explained, and no other") {
  std::set<std::string> found;
  const std::regex code("\"(D_[A-Z_]+)\"");
  for (const auto& entry :
       std::filesystem::directory_iterator(HORA_SOURCE_DIR "/launcher/doctor")) {
    const std::string name = entry.path().filename();
    if (!name.ends_with(".cpp") || name == "finding_classes.cpp") continue;
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

TEST_CASE("Codes of doctor are explained under every spelling") {
  const std::string text = explain_finding("D_SHM").value();
  CHECK(text.find("D_SHM, found by horarun doctor\n\nCause: ") == 0);
  CHECK(explain_finding("d-shm").value() == text);
  CHECK(is_finding_code("d_shm"));
  CHECK_FALSE(is_finding_code("E_USAGE"));
  CHECK(explain_finding("D_SHN").error().message.find("did you mean D_SHM?") != std::string::npos);
}

}  // namespace
}  // namespace hora::launcher::doctor
