// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/program_sections.h"

#include "tests/support/catch.h"
#include "tests/unit/launcher/options/parsing.h"

namespace hora::launcher {
namespace {

TEST_CASE("Programs with ':' between them share one world") {
  const JobSpec job =
      job_of({"-np", "2",  "-x",  "A=1", "--report", "r.json", "./a",    "--lr", "3",   ":", "-n",
              "3",   "-x", "A=2", "-m",  "train",    ":",      "--np=1", "--",   "./c", ":"});
  CHECK(job.command == Words{"./a", "--lr", "3"});
  CHECK(job.num_proc == 6);
  CHECK(job.variables.empty());
  REQUIRE(job.programs.size() == 3);
  CHECK(job.programs[0].command == job.command);
  CHECK(job.programs[0].ranks == 2);
  CHECK(job.programs[0].variables == std::vector<EnvironmentVariable>{{"A", "1"}});
  CHECK(job.programs[1].command == Words{"python3", "-m", "train"});
  CHECK(job.programs[1].ranks == 3);
  CHECK(job.programs[1].variables == std::vector<EnvironmentVariable>{{"A", "2"}});
  CHECK(job.programs[2].command == Words{"./c", ":"});
  CHECK(job.programs[2].variables.empty());

  // After "--", and inside of a word, it is a character like any other.
  const JobSpec one = job_of({"-np", "2", "--", "a", ":", "b"});
  CHECK(one.command == Words{"a", ":", "b"});
  CHECK(one.programs.empty());
  CHECK(job_of({"-np", "2", "a", "x:y", "::"}).command == Words{"a", "x:y", "::"});
}

TEST_CASE("A ':' behind -- that may be meant to begin a program") {
  const auto warnings = [](const Words& words) { return parsed<Launch>(words).warnings; };
  CHECK(
      warnings({"-np", "1", "--", "a", ":", "-n", "1", "--", "b"}) ==
      Words{
          "':' behind -- is an argument of 'a' and begins no other program; leave -- out if it is "
          "to begin one"});
  CHECK(warnings({"-np", "1", "a", ":", "-np", "1", "--", "b", ":", "-np", "1", "c"}).size() == 1);
  CHECK(warnings({"-np", "1", "--", "a", ":", "b", "-np"}).empty());
  CHECK(warnings({"-np", "1", "--", "a", ":"}).empty());
}

TEST_CASE("What is wrong with one of several programs") {
  CHECK(error_of({"-np", "2", "./a", ":", "./b"}) ==
        "program 2 (./b): -np is missing; each program behind ':' needs its number of ranks");
  CHECK(error_of({"-H", "a:2", "./a", ":", "-np", "1", "./b"}) ==
        "program 1 (./a): -np is missing; each of several programs needs it");
  CHECK(error_of({"-np", "2", "./a", ":", "-np", "1", "-H", "b", "./b"}) ==
        "program 2 (./b): -H is for the whole job; put it before the first program");
  CHECK(error_of({"-np", "2", "./a", ":", "-np", "1", "b", ":"})
            .find("no program behind ':' number 2") == 0);
  CHECK(error_of({"-np", "2", "./a", ":", "-np", "x", "./b"}) ==
        "program 2 (./b): -np: expected a whole number from 1 to 1000000, found 'x'");
  CHECK(error_of({"-np", "2", "./a", ":", "-npp", "1", "./b"}).find("program 2: unknown option") ==
        0);
  CHECK(error_of({"-np", "2", "--min-np", "1", "./a", ":", "-np", "1", "./b"})
            .find("several programs cannot be used with elastic jobs") == 0);
  CHECK(error_of({"-np", "2", "--mpi", "./a", ":", "-np", "1", "./b"})
            .find("several programs cannot be used with --mpi") == 0);
  CHECK(error_of({"-np", "2", "--smoke", ":", "-np", "1", "./b"}) ==
        "--smoke brings its own program, found ':'");
  CHECK(error_of({"-np", "900000", "./a", ":", "-np", "900000", "./b"}) ==
        "the programs ask for 1800000 ranks; a job has at most 1000000");
}

TEST_CASE("A file has the programs of a job, as mpirun's --app and Hydra's -configfile") {
  const std::string text =
      "text:# two programs\r\n\n-np 2 -x A=1 ./a --lr \"3 4\" \\\n  # no comment\n"
      "  -n 1 -m train : -np 3 ./c\n";
  for (const std::string name : {"--programs", "--app", "-app", "--configfile", "-configfile"}) {
    const JobSpec job = job_of({"-x", "A=0", "-x", "B=2", name, text});
    CHECK(job.num_proc == 6);
    CHECK(job.variables.empty());
    REQUIRE(job.programs.size() == 3);
    CHECK(job.programs[0].command == Words{"./a", "--lr", "3 4", "#", "no", "comment"});
    CHECK(job.command == job.programs[0].command);
    CHECK(job.programs[0].variables == std::vector<EnvironmentVariable>{{"A", "1"}, {"B", "2"}});
    CHECK(job.programs[1].command == Words{"python3", "-m", "train"});
    CHECK(job.programs[1].ranks == 1);
    CHECK(job.programs[2].ranks == 3);
    CHECK(job.programs[2].variables == std::vector<EnvironmentVariable>{{"A", "0"}, {"B", "2"}});
  }
  const JobSpec one = job_of({"-H", "a:4", "-np", "2", "-x", "A=1", "--app", "text:-np 2 ./a"});
  CHECK(one.programs.empty());
  CHECK(one.num_proc == 2);
  CHECK(one.command == Words{"./a"});
  CHECK(one.variables == std::vector<EnvironmentVariable>{{"A", "1"}});
}

TEST_CASE("What is wrong with a file of programs") {
  const auto error_in = [](const std::string& text) { return error_of({"--app", "text:" + text}); };
  const auto after_path = [&](const std::string& text) {
    const std::string message = error_in(text);
    REQUIRE(message.find("text:" + text) == 0);
    return message.substr(5 + text.size());
  };
  CHECK(after_path("./a") == ":1: -np is missing; each program needs its number of ranks");
  CHECK(after_path("#\n-np 2 ./a : ./b") ==
        ":2: -np is missing; each program needs its number of ranks");
  CHECK(after_path("-np 1 ./a\n\n-np 2 -host b ./b") ==
        ":3: -host is for the whole job; put it on the command line");
  CHECK(after_path("-np 1 ./a\n-np 2 -H b ./b") ==
        ":2: -H is for the whole job; put it on the command line");
  CHECK(after_path("-np 1 ./a\n-np x ./b") ==
        ":2: -np: expected a whole number from 1 to 1000000, found 'x'");
  CHECK(after_path("-np 1") == ":1: no program; expected: -np N program [arguments]");
  CHECK(after_path("-np 1 ./a :") == ":1: no program; expected: -np N program [arguments]");
  CHECK(after_path("-np 1 './a").find(":1: ") == 0);
  CHECK(after_path("# none\n") ==
        ": no program; expected lines such as: -np N program [arguments]");
  CHECK(error_of({"--app", "absent"}).find("--programs: ") == 0);
  CHECK(error_of({"--app", "text:-np 1 a", "b"}) ==
        "--programs text:-np 1 a has the programs of the job, found 'b' behind it");
  CHECK(error_of({"--app", "text:-np 1 a", ":", "-np", "1", "b"}) ==
        "--programs cannot be used with ':'");
  CHECK(error_of({"-np", "3", "--app", "text:-np 1 a\n-np 1 b"}) ==
        "-np 3: the programs of the file ask for 2 ranks; leave -np out");
  CHECK(error_of({"-m", "--app", "text:-np 1 a"}) ==
        "--module is for a line of --programs text:-np 1 a");
  CHECK(error_of({"--smoke", "--app", "text:-np 1 a"}) ==
        "--smoke and --app cannot be used together");
  CHECK(error_of({"--min-np", "1", "-np", "1", "--app", "text:-np 1 a"})
            .find("several programs cannot be used with elastic jobs") == 0);
  CHECK(error_of({"--mpi", "--app", "text:-np 1 a"})
            .find("several programs cannot be used with --mpi") == 0);
}

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
        "--multi-prog: expected one file in place of the program, found 'b' after it");
  CHECK(error_of({"-np", "2", "--multi-prog", "a", ":", "-np", "1", "b"}) ==
        "--multi-prog cannot be used with ':'");
}

}  // namespace
}  // namespace hora::launcher
