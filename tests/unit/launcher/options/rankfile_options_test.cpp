// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/rankfile_options.h"

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

}  // namespace
}  // namespace hora::launcher
