// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/slot_options.h"

#include "tests/support/catch.h"
#include "tests/unit/launcher/options/parsing.h"

namespace hora::launcher {
namespace {

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
