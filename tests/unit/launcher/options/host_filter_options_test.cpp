// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/host_filter_options.h"

#include "tests/support/catch.h"
#include "tests/unit/launcher/options/parsing.h"

namespace hora::launcher {
namespace {

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

}  // namespace
}  // namespace hora::launcher
