// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/host_options.h"

#include "tests/support/catch.h"
#include "tests/unit/launcher/options/parsing.h"

namespace hora::launcher {
namespace {

TEST_CASE("A rankfile places every rank") {
  const JobSpec job = job_of({"--rankfile", "ranks", "x"});
  CHECK(job.num_proc == 2);
  CHECK(format_host_list(job.hosts) == "b:1,a:1");
  CHECK(job_of({"-rf", "ranks", "-H", "a:2,b:2", "x"}).seats ==
        std::vector<RankSeat>{{1, "0"}, {0, "1"}});
  CHECK(job_of({"-rf", "ranks", "-np", "1", "a", ":", "-np", "1", "b"}).seats.size() == 2);
  CHECK(error_of({"-rf", "ranks", "-np", "1", "a", ":", "-np", "2", "b"}) ==
        "-np asks for 3 ranks, and ranks has lines for 2");
  CHECK(job_of({"--map-by", "rankfile:FILE=ranks", "x"}).num_proc == 2);
  CHECK(error_of({"--map-by", "rankfile:ranks", "x"}) ==
        "--map-by: expected rankfile:file=FILE, found 'rankfile:ranks'");
  CHECK(error_of({"--map-by", "rankfile:file=", "x"}).find("--map-by: expected rankfile") == 0);
  CHECK(error_of({"--map-by", "rankfile:file=ranks", "-rf", "ranks", "x"}) ==
        "--rankfile cannot be used with --map-by rankfile, which places each rank");
  CHECK(error_of({"-rf", "none", "x"}).find("--rankfile: opening none") == 0);
  CHECK(error_of({"-rf", "ranks", "--bind", "core", "x"}).find("cannot be used together") !=
        std::string::npos);
  for (const Words& rivals :
       {Words{"--map-by", "node"}, Words{"-N", "1"}, Words{"-np", "2", "--min-np", "1"},
        Words{"--mpi"}, Words{"--listen", "any"}}) {
    Words words{"-rf", "ranks"};
    words.insert(words.end(), rivals.begin(), rivals.end());
    words.emplace_back("x");
    INFO(words[2]);
    CHECK(error_of(words).find("cannot be used with") != std::string::npos);
  }
}

TEST_CASE("Some of the hosts, and some of their GPUs") {
  const JobSpec job = job_of({"-H", "a:4,b:4,c:4", "--include", "a:1,3@b", "x"});
  CHECK(format_host_list(job.hosts) == "a:2,b:4");
  CHECK(job.hosts[0].gpus == std::vector<int>{1, 3});
  CHECK(format_host_list(job_of({"--include", "localhost:0,2", "x"}).hosts) == "localhost:2");
  CHECK(format_host_list(
            job_of({"-H", "a,b", "--slots-per-host", "4", "--exclude", "a:0@b", "x"}).hosts) ==
        "a:3");
  CHECK(job_of({"-np", "3", "--include", "localhost", "x"}).hosts.empty());
  // --nnodes and -N count what is left.
  CHECK(format_host_list(
            job_of({"-H", "a:2,b:2,c:2", "--exclude", "a", "--nnodes", "1", "x"}).hosts) == "b:2");
  CHECK(error_of({"-H", "a:4", "--include", "a", "--exclude", "a", "x"}) ==
        "--include and --exclude cannot be used together");
  CHECK(error_of({"-H", "a:4", "--include", "a:0", "-x", "CUDA_VISIBLE_DEVICES=1", "x"})
            .find("cannot be used with -x") != std::string::npos);
  CHECK(error_of({"-H", "a:4", "--include", "a:0", "-np", "1", "x", ":", "-np", "1", "-x",
                  "CUDA_VISIBLE_DEVICES=1", "y"})
            .find("cannot be used with -x") != std::string::npos);
  for (const Words& rivals :
       {Words{"-np", "1", "--min-np", "1"}, Words{"--mpi"}, Words{"--listen", "any"}}) {
    Words words{"-H", "a:4", "--include", "a:0"};
    words.insert(words.end(), rivals.begin(), rivals.end());
    words.emplace_back("x");
    CHECK(error_of(words).find("cannot be used") != std::string::npos);
  }
  CHECK(
      job_of({"-H", "a:4,b:4", "--include", "a", "--min-np", "1", "-np", "1", "x"}).hosts.size() ==
      1);
}

std::string hosts_of(const Words& words) { return format_host_list(job_of(words).hosts); }

TEST_CASE("Ranks by host") {
  for (const Words& words :
       {Words{"-N", "2", "x"}, Words{"-N2", "x"}, Words{"-ppn", "2", "x"},
        Words{"--nproc-per-node=2", "x"}, Words{"--nproc_per_node", "2", "x"}}) {
    CHECK(hosts_of(words) == "localhost:2");
    CHECK(job_of(words).num_proc == 0);
  }
  CHECK(hosts_of({"-N", "2", "-H", "a,b:4,c:0", "x"}) == "a:2,b:2,c:0");
  CHECK(hosts_of({"--nnodes", "2", "-H", "a:4,b:0,c:3,d:1", "x"}) == "a:4,c:3");
  CHECK(hosts_of({"--nnodes", "2", "-N", "3", "-H", "a:4,b:3,c:1", "x"}) == "a:3,b:3");
  CHECK(job_of({"-np", "3", "--nnodes", "1", "x"}).hosts.empty());
  const JobSpec by_gpu = job_of({"--nproc-per-node", "gpu", "x"});
  CHECK(by_gpu.slots_per_host_auto);
  CHECK(format_host_list(by_gpu.hosts) == "localhost");
  CHECK(job_of({"-N", "auto", "-H", "a,b", "x"}).slots_per_host_auto);

  CHECK(error_of({"-N", "3", "-H", "a:4,b:2", "x"}) == "--nproc-per-node 3: host b has 2 slots");
  CHECK(error_of({"-N", "0", "x"}).find("--nproc-per-node: expected a number of ranks") == 0);
  CHECK(error_of({"-N", "cpu", "x"}).find("or auto, found 'cpu'") != std::string::npos);
  CHECK(error_of({"--nnodes", "3", "-H", "a:4,b:2", "x"}) ==
        "--nnodes 3 asks for 3 hosts, but there are 2");
  CHECK(error_of({"-np", "2", "--nnodes", "2", "x"}).find("(this machine); give hosts") !=
        std::string::npos);
  CHECK(error_of({"-np", "2", "--nnodes", "1:4", "x"}).find("--min-np and --max-np") !=
        std::string::npos);
  CHECK(error_of({"-np", "2", "--nnodes", "x", "x"}).find("found 'x'") != std::string::npos);
  CHECK(error_of({"-N", "2", "--slots-per-host", "2", "x"}).find("cannot be used together") !=
        std::string::npos);
}

}  // namespace
}  // namespace hora::launcher
