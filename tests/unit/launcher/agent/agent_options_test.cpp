// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/agent_options.h"

#include <vector>

#include "tests/support/catch.h"

using namespace hora::launcher;

TEST_CASE("agent options: values, numbers and flags") {
  const std::vector<const char*> words{"--parts",
                                       "0123456789abcdef,fedcba9876543210:gpu",
                                       "--cache",
                                       "/c",
                                       "--local-bundle",
                                       "/l",
                                       "--probe",
                                       "--report-sha",
                                       "--cleans-cache",
                                       "--cache-max-age",
                                       "2592000",
                                       "--cache-max-size",
                                       "5000000000",
                                       "--launcher",
                                       "17",
                                       "--cpus",
                                       "0-3,8",
                                       "--library-path",
                                       "/a:/b",
                                       "--run-path",
                                       "/r",
                                       "--program",
                                       "python3",
                                       "--find",
                                       "libmpi.so.40",
                                       "--shim-margin-ms",
                                       "5",
                                       "--suspended-lease-ms",
                                       "0"};
  const auto options = parse_agent_options(words);
  REQUIRE(options);
  CHECK(options->parts ==
        std::vector<NeededPart>{{"0123456789abcdef", false}, {"fedcba9876543210", true}});
  CHECK(options->cache_directory == "/c");
  CHECK(options->local_bundle == "/l");
  CHECK((options->probe && options->report_sha && options->cleans_cache));
  CHECK(cache_limits(options->cache_max_age_s, options->cache_max_bytes) ==
        CacheLimits{std::chrono::seconds(2592000), std::uint64_t{5'000'000'000}});
  CHECK(options->library_path == "/a:/b");
  CHECK(options->run_path == "/r");
  CHECK(options->program == "python3");
  CHECK(options->find == "libmpi.so.40");
  CHECK(options->launcher == 17);
  CHECK(options->cpus == "0-3,8");
  CHECK(options->shim_margin_ms == 5);
  CHECK(options->suspended_lease_ms == 0);
  CHECK(parse_agent_options({})->launcher == 0);
  CHECK(parse_agent_options({})->cpus.empty());
  CHECK(cache_limits(0, 0) == CacheLimits{});
}

TEST_CASE("agent options: what is cleaned") {
  const auto options = parse_clean_options(
      std::vector<const char*>{"--max-age", "60", "--max-size", "5000000000", "--dry-run"});
  REQUIRE(options);
  CHECK((options->max_age_s == 60 && options->max_bytes == 5'000'000'000 && options->dry_run));
  CHECK_FALSE(parse_clean_options(std::vector<const char*>{"--max-age", "-1"}));
  CHECK_FALSE(parse_clean_options(std::vector<const char*>{"--probe"}));
}

TEST_CASE("agent options: what is not understood is named") {
  const auto problem = [](const std::vector<const char*>& words) {
    const auto options = parse_agent_options(words);
    REQUIRE_FALSE(options);
    return options.error().message;
  };
  CHECK(problem({"--probe", "--no-such"}) == "--no-such");
  CHECK(problem({"--cache"}) == "--cache");
  CHECK(problem({"--launcher", "x"}) == "x");
  CHECK(problem({"--launcher", "-1"}) == "-1");
  CHECK(problem({"--probe", "yes"}) == "yes");
}
