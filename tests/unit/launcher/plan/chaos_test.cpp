// SPDX-License-Identifier: Apache-2.0
#include "launcher/plan/chaos.h"

#include <signal.h>

#include <algorithm>
#include <random>

#include "launcher/plan/plan.h"
#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

using std::chrono::milliseconds;

// a: ranks 0 and 1, b: 2 and 3, ::1: 4.
Plan plan() { return plan_job(parse_host_list("a:2,b:2,[::1]:1", "-H").value(), 0).value(); }

std::vector<ChaosAct> acts_of(std::string_view text) {
  auto spec = parse_chaos(text);
  INFO(text);
  if (!spec) FAIL(spec.error().message);
  CHECK(spec->text == text);
  return spec->acts;
}

std::string error_of(std::string_view text) {
  const auto spec = parse_chaos(text);
  INFO(text);
  REQUIRE_FALSE(spec);
  CHECK(spec.error().code == ErrorCode::kUsage);
  const std::string& message = spec.error().message;
  return message.substr(0, message.find('\n'));
}

std::vector<ChaosStep> steps_of(std::string_view text) {
  auto steps = schedule_chaos(parse_chaos(text).value(), plan());
  INFO(text);
  if (!steps) FAIL(steps.error().message);
  return *steps;
}

std::string schedule_error(std::string_view text) {
  const auto steps = schedule_chaos(parse_chaos(text).value(), plan());
  INFO(text);
  REQUIRE_FALSE(steps);
  CHECK(steps.error().code == ErrorCode::kUsage);
  const std::string& message = steps.error().message;
  return message.substr(0, message.find('\n'));
}

TEST_CASE("acts of --chaos") {
  using Acts = std::vector<ChaosAct>;
  CHECK(acts_of("kill:3@10s") == Acts{{SIGKILL, "3", 5, milliseconds(10'000), {}}});
  CHECK(acts_of("term:node-2@0") == Acts{{SIGTERM, "node-2", 5, milliseconds(0), {}}});
  CHECK(acts_of("stop:5@1m+500ms,stop:0@2") ==
        Acts{{SIGSTOP, "5", 5, milliseconds(60'000), milliseconds(500)},
             {SIGSTOP, "0", 21, milliseconds(2'000), {}}});
  CHECK(acts_of("kill:[::1]@1s")[0].target == "[::1]");
}

TEST_CASE("what is wrong with --chaos, and where") {
  const auto at = [](int column, const std::string& words) {
    return "--chaos: column " + std::to_string(column) + ": " + words;
  };
  const std::string such = ", such as kill:3@10s or stop:5@20s+3s";
  const std::string time = "expected a time up to 365d, such as 30, 30s, 1m30s or 500ms, found ";
  CHECK(error_of("") == at(1, "expected kill, term or stop" + such + ", found ''"));
  CHECK(error_of("kill:1@1,") == at(10, "expected kill, term or stop" + such + ", found ''"));
  CHECK(error_of("kill:1@1, stop:1@1") ==
        at(10, "expected kill, term or stop" + such + ", found ' stop'"));
  CHECK(error_of("Kill:1@1") == at(1, "expected kill, term or stop" + such + ", found 'Kill'"));
  CHECK(error_of("kill") == at(5, "expected ':' and a rank or a host" + such));
  CHECK(error_of("kill:@1s") == at(6, "expected a rank or a host" + such));
  CHECK(error_of("kill:1,stop:2@1") == at(7, "expected '@' and a time" + such));
  CHECK(error_of("kill:1@") == at(8, time + "''"));
  CHECK(error_of("kill:1@ten") == at(8, time + "'ten'"));
  CHECK(error_of("kill:1@-1") == at(8, time + "'-1'"));
  CHECK(error_of("stop:1@1s+") == at(11, time + "''"));
  CHECK(error_of("stop:1@1s+1s+1s") == at(11, time + "'1s+1s'"));
  CHECK(error_of("term:1@1s+1s") == at(10, "only stop has a duration"));
  CHECK(error_of("slow:a=50ms").find(at(1, "slow is not supported")) == 0);
}

TEST_CASE("the schedule of --chaos is by time") {
  using Steps = std::vector<ChaosStep>;
  CHECK(steps_of("stop:3@2s+3s,kill:0@3s") == Steps{{milliseconds(2'000), 1, 3, SIGSTOP},
                                                    {milliseconds(3'000), 0, 0, SIGKILL},
                                                    {milliseconds(5'000), 1, 3, SIGCONT}});
  CHECK(steps_of("term:1@1s,stop:1@1s") ==
        Steps{{milliseconds(1'000), 0, 1, SIGTERM}, {milliseconds(1'000), 0, 1, SIGSTOP}});
}

TEST_CASE("--chaos of a host means all its ranks") {
  using Steps = std::vector<ChaosStep>;
  CHECK(steps_of("kill:b@1s") ==
        Steps{{milliseconds(1'000), 1, 2, SIGKILL}, {milliseconds(1'000), 1, 3, SIGKILL}});
  CHECK(steps_of("kill:[::1]@1s") == Steps{{milliseconds(1'000), 2, 4, SIGKILL}});
  CHECK(steps_of("kill:::1@1s") == steps_of("kill:[::1]@1s"));
  CHECK(steps_of("kill:004@1s") == steps_of("kill:4@1s"));
}

TEST_CASE("--chaos of what is not in the job") {
  CHECK(schedule_error("kill:0@1s,kill:5@1s") ==
        "--chaos: column 16: the job has no rank 5; expected 0 to 4, or a host");
  CHECK(schedule_error("kill:99999999999999999999@1s")
            .find("the job has no rank 99999999999999999999") != std::string::npos);
  CHECK(schedule_error("stop:c@1s") ==
        "--chaos: column 6: the job has no ranks on host 'c'; its hosts are a, b, ::1");
}

TEST_CASE("any text for --chaos gives acts or one message") {
  std::mt19937 random(7);
  const std::string letters = "kilterm stop:@+,0159s/m.[]\xC3\x01";
  int good = 0;
  for (int round = 0; round < 20'000; ++round) {
    // Half of them are one change away from a good one.
    std::string text = round % 2 == 0 ? "stop:1@20s+3s,kill:a@5" : "";
    const std::size_t length = random() % 12;
    for (std::size_t i = 0; i < length && round % 2 != 0; ++i) {
      text += letters[random() % letters.size()];
    }
    if (round % 2 == 0) text[random() % text.size()] = letters[random() % letters.size()];
    const auto spec = parse_chaos(text);
    if (!spec) {
      CHECK(spec.error().message.find("--chaos: column ") == 0);
      continue;
    }
    ++good;
    const auto steps = schedule_chaos(*spec, plan());
    if (!steps) continue;
    CHECK(std::is_sorted(steps->begin(), steps->end(),
                         [](const auto& a, const auto& b) { return a.at < b.at; }));
  }
  CHECK(good > 100);
}

}  // namespace
}  // namespace hora::launcher
