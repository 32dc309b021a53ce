// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/runtime_variables.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

TEST_CASE("a misspelt variable of the runtime is told, with the one that was meant") {
  CHECK(misspelt_runtime_variables({"HORA_BACKEND"}) ==
        std::vector<std::string>{
            "HORA_BACKEND is set, and nothing reads it; did you mean HORA_BACKENDS?"});
  CHECK(misspelt_runtime_variables({"PATH", "HORA_SIMD", "HORA_JOB_ID", "HORA_BUILD", "HORA_NP"})
            .empty());
}

TEST_CASE("no variable that Hora or its tests set is taken for a misspelt one") {
  for (const char* name : {"HORA_FLIGHT_RECORDER",
                           "HORA_JOB_DIRECTORY",
                           "HORA_KNOWS_STATE",
                           "HORA_RENDEZVOUS_TLS",
                           "HORA_RENDEZVOUS_TOKEN",
                           "HORA_RESTART",
                           "HORA_ROUND",
                           "HORA_STACKS",
                           "HORA_STACKS_SIGNAL",
                           "HORA_WORKER",
                           "HORA_AGENT_MARK",
                           "HORA_GPU",
                           "HORA_SEED",
                           "HORA_SEEDS",
                           "HORA_ROOTS",
                           "HORA_ONLY",
                           "HORA_FAULT",
                           "HORA_AT_ONCE",
                           "HORA_PACKAGES",
                           "HORA_PLACES_BY_MACHINE"}) {
    INFO(name);
    CHECK(misspelt_runtime_variables({name}).empty());
  }
}

TEST_CASE("every setting of the runtime's page is one of the variables") {
  std::ifstream file(HORA_SOURCE_DIR "/docs/reference/runtime.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  const std::size_t begin = page.find("\n## Settings");
  const std::string table = page.substr(begin, page.find("\n## ", begin + 1) - begin);
  const std::regex row("\n\\| `(HORA_[A-Z_]+)`");
  int rows = 0;
  for (std::sregex_iterator at(table.begin(), table.end(), row), end; at != end; ++at, ++rows) {
    const std::string name = (*at)[1];
    INFO(name);
    CHECK(std::count(runtime_variables().begin(), runtime_variables().end(), name) == 1);
  }
  CHECK(rows > 5);
}

}  // namespace
}  // namespace hora::launcher
