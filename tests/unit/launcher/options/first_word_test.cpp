// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/first_word.h"

#include "launcher/options/option_table.h"
#include "launcher/options/usage_text.h"
#include "tests/support/catch.h"
#include "tests/unit/launcher/options/parsing.h"

namespace hora::launcher {
namespace {

TEST_CASE("A first word that is no program is answered with what was meant") {
  for (const auto& [words, answer] : std::vector<std::pair<Words, std::string>>{
           {{"doctr", "-H", "localhost"}, "did you mean 'horarun doctor'?"},
           {{"cahce", "ls"}, "did you mean 'horarun cache'?"},
           {{"explian", "E_USAGE"}, "did you mean 'horarun explain'?"},
           {{"timelin", "merge"}, "did you mean 'horarun timeline'?"},
           {{"smoke"}, "did you mean --smoke?"},
           {{"status"},
            "-np is missing; give the number of ranks, or hosts with slots, such as -H "
            "a:2,b:2 (there is no verb or program 'status' here)"},
           {{"--verbose", "doctor"}, "'doctor' is a verb only as the first word: horarun doctor"},
           {{"run", "true"}, "takes the place of 'run': horarun -np N true"},
           {{"launch", "train.py"}, "of 'launch': horarun -np N python3 train.py"},
           {{"accelerate", "launch", "a.py"}, "of 'accelerate': horarun -np N python3 a.py"},
           {{"mpirun", "-x", "A", "b"}, "of 'mpirun': horarun -np N python3 train.py"},
           {{"--doctor"}, "did you mean 'horarun doctor'?"},
           {{"--explain", "E_CWD"}, "did you mean 'horarun explain'?"},
           {{"-?"}, "did you mean --help?"},
           {{"help", "doctr"}, "did you mean doctor?"},
           {{"help", "doctor", "x"}, "expected: horarun help [verb]"},
           {{"cache", "list"}, "found 'list'; did you mean 'horarun cache ls'?"},
           {{"cache", "rm"}, "found 'rm'; did you mean 'horarun cache clean'?"},
           {{"doctor", "a", "b"}, "unexpected argument 'a'; name hosts with -H a,b"}}) {
    INFO(words.front());
    CHECK(error_of(words).find(answer) != std::string::npos);
  }
  for (const Words& words : {Words{"true"}, {"train.py"}, {"./x"}, {"-m", "doctr"}}) {
    CHECK(error_of(words).find("-np is missing") == 0);
  }
}

TEST_CASE("Where ranks are asked for, every word is a program") {
  for (const char* word : {"doctor", "version", "help", "doctr", "torchrun", "status"}) {
    CHECK(job_of({"-np", "1", word}).command == Words{word});
    CHECK(job_of({"-H", "a:1", word}).command == Words{word});
  }
  // Also without an option, where the environment has the number and PATH the program.
  CHECK(parsed<ShowText>({"version"}, {{"HORARUN_NUM_PROC", "1"}}).text == HORA_VERSION "\n");
  CHECK(job_of({"version", "x"}, {{"HORARUN_NUM_PROC", "1"}}).command == Words{"version", "x"});
}

TEST_CASE("help and version are verbs") {
  CHECK(parsed<ShowText>({"help"}).text == help_text(kVerbLaunch, false));
  CHECK(parsed<ShowText>({"help", "doctor"}).text == help_text(kVerbDoctor, false));
  CHECK(parsed<ShowText>({"help", "version"}).text == help_text(kVerbLaunch, false));
  CHECK(parsed<ShowText>({"version"}).text == HORA_VERSION "\n");
}

}  // namespace
}  // namespace hora::launcher
