// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/other_launchers.h"

#include "tests/support/catch.h"
#include "tests/unit/launcher/options/parsing.h"

namespace hora::launcher {
namespace {

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

}  // namespace
}  // namespace hora::launcher
