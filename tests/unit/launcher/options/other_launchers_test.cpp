// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/other_launchers.h"

#include "launcher/options/option_check.h"
#include "launcher/options/option_table.h"
#include "launcher/options/usage_text.h"
#include "tests/support/catch.h"
#include "tests/unit/launcher/options/parsing.h"

namespace hora::launcher {
namespace {

std::string error_of_word(const std::string& word) {
  const auto spelled = read_spelling({word, "value", "program"}, kVerbLaunch);
  return spelled ? "" : spelled.error().message;
}

// An option that horarun itself took under this name, or as an abbreviation, would never be
// answered from the table.
TEST_CASE("Every row of the table answers its name as an option") {
  for (const PeerOption& option : peer_options()) {
    const std::string name(option.name);
    CHECK(error_of_word(name) == "unknown option '" + name + "'; " + peer_answer_text(option));
    if (name.size() > 2) CHECK(error_of_word(name + "=value") == error_of_word(name));
  }
  CHECK(peer_options().size() >= 350);
}

TEST_CASE("What horarun calls an option is an option of horarun") {
  for (const PeerOption& option : peer_options()) {
    if (option.kind != PeerAnswer::kCalled) continue;
    INFO(option.name);
    CHECK(find_option(option.answer.substr(0, option.answer.find(' ')), kVerbLaunch) != nullptr);
  }
}

TEST_CASE("Long names are known with one dash and two, with dashes and underscores") {
  for (const char* name : {"--cpu-bind", "-cpu-bind", "--cpu_bind"}) {
    CHECK(
        error_of_word(name) ==
        "unknown option '" + std::string(name) +
            "'; horarun calls this --bind core|l3|socket|numa|none (map_cpu:0,2 is cpu-list:0:2)");
  }
  CHECK(find_peer_option("--genv") == find_peer_option("-genv"));
  CHECK(find_peer_option("--D") == nullptr);
  CHECK(find_peer_option("--bind-to-nothing") == nullptr);
  CHECK(find_peer_option("--") == nullptr);
}

TEST_CASE("Abbreviations of horovodrun's options win over other launchers' options") {
  const auto spelled = read_spelling({"--output", "logs", "program"}, kVerbLaunch);
  REQUIRE(spelled);
  CHECK(long_name(*spelled->options.front().row) == "--output-filename");
}

TEST_CASE("Long names of our options are known with one dash, as mpirun and Hydra write them") {
  for (const char* name : {"--bind-to", "--map-by", "--rankfile", "--tag-output", "--timeout",
                           "--merge-stderr-to-stdout", "--output-filename", "--stdin", "--verbose",
                           "--version", "--wdir", "--hosts", "--hostfile"}) {
    INFO(name);
    const auto once = read_spelling({name + 1, "value", "program"}, kVerbLaunch);
    REQUIRE(once);
    CHECK(once->options.front().row == find_option(name, kVerbLaunch));
    CHECK(once->options.front().typed == name + 1);
  }
  // Hydra's has two values, so it is not our --env.
  CHECK(error_of_word("-env").find("-x NAME=VALUE") != std::string::npos);
  // One letter after a dash is a short option, and no option has three dashes.
  CHECK(error_of_word("---bind-to").find("unknown option") == 0);
}

TEST_CASE("Values of other launchers are answered with what horarun has instead") {
  const auto answer = [](std::vector<std::string> words) {
    words.emplace_back("program");
    const auto spelled = read_spelling(words, kVerbLaunch);
    if (!spelled) return spelled.error().message;
    const auto values = check_options(*spelled, kVerbLaunch);
    return values ? std::string() : values.error().message;
  };
  CHECK(answer({"--mpi=pmix"}) ==
        "--mpi takes no value, found 'pmix'; horarun calls this --pmi pmix");
  CHECK(answer({"--mpi=other"}) == "--mpi takes no value, found 'other'");
  const std::string expected = "--map-by: expected slot, node or rankfile:file=FILE, found ";
  for (const auto& [value, ours] :
       {std::pair{"ppr:2:node", "-N 2"},
        {"ppr:2:socket", "-N 2 with the ranks of a whole host, and --bind socket"},
        {"core", "--bind core"},
        {"socket:PE=2", "--bind socket"},
        {"numa", "--bind numa"},
        {"l3cache", "--bind l3"},
        {"slot:PE=4",
         "--map-by slot --bind core, which shares the cores of a host among its ranks"},
        {"node:OVERSUBSCRIBE", "--map-by node; slots may be more than cores"}}) {
    CHECK(answer({"--map-by", value}) == expected + "'" + value + "'; horarun calls this " + ours);
  }
  CHECK(answer({"--map-by", "mars"}) == expected + "'mars'");
  CHECK(answer({"--bind-to", "l3cache"}).ends_with("horarun calls this --bind l3"));
  CHECK(answer({"--bind-to", "core"}).empty());
}

// "-n" and "-p" take glued values, "-i" any.
TEST_CASE("A peer's name is not the value of a short option") {
  CHECK(error_of_word("-iface").find("--network-interfaces") != std::string::npos);
  CHECK(error_of_word("-prepend-rank").find("not needed") != std::string::npos);
  CHECK(error_of_word("-print-rank-map").find("--dry-run") != std::string::npos);
  CHECK(error_of_word("-ilp64").find("not needed") != std::string::npos);
  CHECK(error_of_word("--cpu").find("ACCELERATE_USE_CPU") != std::string::npos);
  CHECK(error_of_word("-npernode").find("--nproc-per-node") != std::string::npos);
}

Words warnings_of(const Words& words) { return parsed<Launch>(words).warnings; }

TEST_CASE("Ranks that are launchers are warned of, with what to type instead") {
  for (const auto& [words, launcher, instead] :
       std::vector<std::tuple<Words, std::string, std::string>>{
           {{"-np", "2", "torchrun", "train.py", "--lr", "3"},
            "torchrun",
            "-np 2 python3 train.py --lr 3"},
           {{"-np", "2", "/opt/bin/torchrun", "--nproc-per-node", "4", "train.py"},
            "/opt/bin/torchrun",
            "-np N python3 train.py"},
           {{"-H", "a:2", "accelerate", "launch", "a.py"},
            "accelerate launch",
            "-np N python3 a.py"},
           {{"-np", "2", "deepspeed", "a.py"}, "deepspeed", "-np 2 python3 a.py"},
           {{"-np", "3", "horarun", "true"}, "horarun", "-np 3 true"},
           {{"-np", "2", "mpirun", "-n", "2", "./a"}, "mpirun", "-np N python3 train.py"},
           {{"-np", "2", "srun", "./a", "b c"}, "srun", "-np 2 ./a 'b c'"},
           {{"-np", "2", "torchrun"}, "torchrun", "-np N python3 train.py"},
           {{"-np", "2", "-m", "torch.distributed.run", "a.py"},
            "python3 -m torch.distributed.run",
            "-np 2 python3 a.py"},
           {{"-np", "2", "python3.11", "-u", "-W", "ignore", "-m", "accelerate.commands.launch",
             "a"},
            "python3.11 -u -W ignore -m accelerate.commands.launch",
            "-np 2 a"}}) {
    CHECK(warnings_of(words) ==
          Words{"each rank starts '" + launcher +
                "', which starts processes of its own; give horarun the program itself: horarun " +
                instead});
  }
}

TEST_CASE(
    "Several horaruns that an MPI launcher has started are refused, with the lines that work") {
  CHECK(error_of({"-np", "2", "python3", "a.py"}, {{"OMPI_COMM_WORLD_SIZE", "2"}}) ==
        "mpirun has started 2 of this horarun (OMPI_COMM_WORLD_SIZE=2), and each would run the "
        "whole job; start one: horarun -np 2 python3 a.py\n"
        "  or let mpirun start the ranks: horarun -np 2 --mpi python3 a.py\n"
        "  or run a job of its own in each: mpirun -n 2 env -u OMPI_COMM_WORLD_SIZE horarun ...");
  CHECK_THAT(error_of({"-np", "2", "--smoke"}, {{"PMI_SIZE", "4"}}),
             Contains("mpiexec has started 4 of this horarun") &&
                 Contains("horarun -np 4 --mpi --smoke\n"));
  CHECK(error_of({"-np", "1", "true"}, {{"MV2_COMM_WORLD_SIZE", "3"}}) != "");
  const Words words{"-np", "2", "true"};
  for (const Variables& fine : std::vector<Variables>{
           {{"OMPI_COMM_WORLD_SIZE", "1"}},
           {{"PMI_SIZE", "2"}, {"HOROVOD_RANK", "0"}},          // a rank of --pmi pmi1
           {{"PMI_SIZE", "2"}, {"SLURM_STEP_NUM_TASKS", "2"}},  // the engine's
       }) {
    CHECK(parsed<Launch>(words, fine).job.num_proc == 2);
  }
}

TEST_CASE("Several programs that are launchers are warned of once") {
  const Words warnings = warnings_of(
      {"-np", "1", "true", ":", "-np", "2", "torchrun", "a.py", ":", "-np", "2", "srun", "b"});
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("'torchrun'") != std::string::npos);
  CHECK(warnings[0].find("-np N python3 a.py") != std::string::npos);
}

TEST_CASE("What only looks like a launcher is not warned of") {
  for (const Words& words : {Words{"python3", "torchrun"},
                             {"python3", "train.py", "-m", "torch.distributed.run"},
                             {"python3", "-m", "torch.distributed"},
                             {"python3", "-m"},
                             {"accelerate", "env"},
                             {"accelerate"},
                             {"run"},
                             {"launch"},
                             {"mpirun.py"},
                             {"./torchrun/train"},
                             {"echo", "torchrun"}}) {
    Words all{"-np", "2"};
    all.insert(all.end(), words.begin(), words.end());
    CHECK(warnings_of(all).empty());
  }
}

TEST_CASE("A first word that does not name a program gets a suggestion") {
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
