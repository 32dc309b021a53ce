// SPDX-License-Identifier: Apache-2.0
#include "launcher/failures/finding_classes.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

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

}  // namespace
}  // namespace hora::launcher
