// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/rank_programs.h"

#include "tests/support/catch.h"
#include "tests/unit/launcher/options/parsing.h"

namespace hora::launcher {
namespace {

TEST_CASE("A file says what which ranks run, as srun --multi-prog") {
  const auto job_in = [](const Words& options, const std::string& text) {
    Words words = options;
    words.insert(words.end(), {"--multi-prog", "text:" + text});
    return job_of(words);
  };
  const JobSpec job =
      job_in({"-np", "8", "-x", "A=1"},
             "# of the job\n4-6 host %q%\n1,7 echo task:%t\n0,2 \\\necho '%o 1'\n* rest");
  CHECK(job.num_proc == 8);
  CHECK(job.variables.empty());
  std::vector<std::pair<Words, int>> found;
  for (const Program& program : job.programs) {
    found.emplace_back(program.command, program.ranks);
    CHECK(program.variables == std::vector<EnvironmentVariable>{{"A", "1"}});
  }
  CHECK(found == std::vector<std::pair<Words, int>>{{{"echo", "0 1"}, 1},
                                                    {{"echo", "task:1"}, 1},
                                                    {{"echo", "1 1"}, 1},
                                                    {{"rest"}, 1},
                                                    {{"host", "%q%"}, 3},
                                                    {{"echo", "task:7"}, 1}});
  CHECK(job.command == Words{"echo", "0 1"});
  // The lines say how many ranks there are; the same words for all are one program.
  const JobSpec one = job_in({"-x", "A=1"}, "0-2 ./a\n3 ./a");
  CHECK(one.num_proc == 4);
  CHECK(one.programs.empty());
  CHECK(one.command == Words{"./a"});
  CHECK(one.variables.size() == 1);
  CHECK(job_in({"-np", "3"}, "1 b %o\n* a %o").programs[2].command == Words{"a", "1"});
}

TEST_CASE("What is wrong with the file of --multi-prog") {
  const auto after_path = [](const std::string& text, const Words& options = {"-np", "4"}) {
    Words words = options;
    words.insert(words.end(), {"--multi-prog", "text:" + text});
    const std::string message = error_of(words);
    REQUIRE(message.find("text:" + text) == 0);
    return message.substr(5 + text.size());
  };
  CHECK(after_path("0-3") == ":1: no program; expected: RANKS program [arguments]");
  CHECK(after_path("0-2 a") ==
        ": no program for rank 3; a line that begins with * is for the rest");
  CHECK(after_path("0-4 a") == ":1: rank 4 is not in a job of 4 ranks");
  CHECK(after_path("0-3 a\n2 b") == ":2: rank 2 has a program already, in text:0-3 a\n2 b:1");
  CHECK(after_path("* a\n#\n* b") == ":3: '*' stands in text:* a\n#\n* b:1 already");
  CHECK(after_path("* a", {}) == ":1: '*' is for the rest of the ranks, and -np is missing");
  CHECK(after_path("x a").find(":1: column 1: expected ranks such as 0,4-7") == 0);
  CHECK(after_path("").find(": no program; expected lines such as") == 0);
  CHECK(after_path("0-999999 a %t", {}) ==
        ": more than 10000 programs; %t and %o make one for each rank");
  for (const char* rank : {"1000000", "2147483647"}) {
    CHECK(after_path(std::string("0-") + rank + " a", {})
              .find(std::string(":1: column 1: rank ") + rank +
                    " is too large; a job has at most 1000000 ranks") == 0);
  }
  CHECK(error_of({"-np", "2", "--multi-prog"}) ==
        "--multi-prog: expected one file in place of the program");
  CHECK(error_of({"-np", "2", "--multi-prog", "a", "b"}) ==
        "--multi-prog: expected one file in place of the program, found 'b' behind it");
  CHECK(error_of({"-np", "2", "--multi-prog", "a", ":", "-np", "1", "b"}) ==
        "--multi-prog cannot be used with ':'");
}

}  // namespace
}  // namespace hora::launcher
