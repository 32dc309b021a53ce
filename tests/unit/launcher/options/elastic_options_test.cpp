// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/elastic_options.h"

#include "tests/support/catch.h"
#include "tests/unit/launcher/options/parsing.h"

namespace hora::launcher {
namespace {

TEST_CASE("Options of elastic jobs") {
  CHECK(!job_of({"-np", "4", "x"}).elastic);
  const JobSpec least = job_of({"-np", "4", "--min-np", "2", "-H", "a:2,b:2", "x"});
  REQUIRE(least.elastic);
  CHECK(least.elastic->min_np == 2);
  CHECK(!least.elastic->max_np);
  CHECK(least.elastic->timeout == std::chrono::seconds(600));
  const JobSpec all =
      job_of({"--min-np", "2", "--max-num-proc", "8", "--host-discovery-script", "./d.sh",
              "--elastic-timeout", "30", "--reset-limit", "3", "--blacklist-cooldown-range", "5",
              "60", "--slots-per-host", "3", "x", "5"});
  REQUIRE(all.elastic);
  CHECK(all.num_proc == 2);
  CHECK(all.elastic->max_np == 8);
  CHECK(all.elastic->discovery_script == "./d.sh");
  CHECK(all.elastic->timeout == std::chrono::seconds(30));
  CHECK(all.elastic->reset_limit == 3);
  CHECK(all.elastic->cooldown_seconds == std::make_pair(5, 60));
  CHECK(all.slots_per_host == 3);
  CHECK(all.command == Words{"x", "5"});
  CHECK(job_of({"-np", "2", "--host-discovery-script", "d", "x"}).elastic->min_np == 2);
  CHECK(!job_of({"-np", "2", "--min-np", "1", "--mpi", "x"}).by_mpirun);

  CHECK(error_of({"-np", "2", "--min-np", "3", "x"}).find("--min-np 3 is more than -np 2") == 0);
  CHECK(error_of({"-np", "4", "--min-np", "1", "--max-np", "3", "x"}).find("--max-np 3 is less") ==
        0);
  CHECK(error_of({"--host-discovery-script", "d", "x"}).find("-np is missing") == 0);
  CHECK(error_of({"-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "9", "3", "x"})
            .find("the smaller one first") != std::string::npos);
  CHECK(error_of({"-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "9", "x"})
            .find("the smaller one first") != std::string::npos);
  CHECK(error_of({"-H", "a:2", "--host-discovery-script", "d", "-np", "2", "x"})
            .find("cannot be used together") != std::string::npos);
  CHECK(error_of({"-np", "2", "--min-np", "1", "--slots-per-host", "auto", "x"}).find("a number") !=
        std::string::npos);
}

}  // namespace
}  // namespace hora::launcher
