// SPDX-License-Identifier: Apache-2.0
#include "launcher/plan/programs.h"

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

TEST_CASE("Programs own consecutive ranks") {
  const std::vector<Program> programs{{{"a"}, 2, {}}, {{"b", "c d"}, 1, {}}, {{"e"}, 3, {}}};
  std::vector<std::size_t> found;
  for (int rank = 0; rank < 7; ++rank) found.push_back(program_of_rank(programs, rank));
  CHECK(found == std::vector<std::size_t>{0, 0, 1, 2, 2, 2, 2});

  JobSpec spec;
  spec.command = {"a"};
  CHECK(commands_of(spec) == std::vector<std::vector<std::string>>{{"a"}});
  spec.programs = programs;
  CHECK(programs_text(commands_of(spec)) == "a : b 'c d' : e");
}

}  // namespace
}  // namespace hora::launcher
