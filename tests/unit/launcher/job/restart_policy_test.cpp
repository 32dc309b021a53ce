// SPDX-License-Identifier: Apache-2.0
#include "launcher/job/restart_policy.h"

#include <csignal>

#include "launcher/failures/failure_code.h"
#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

const std::vector<HostPlan> kHosts = {{{"a", "", 2}, 0, {{0, 0, 0, 1}, {1, 1, 0, 1}}},
                                      {{"b", "", 2}, 1, {{2, 0, 1, 1}, {3, 1, 1, 1}}}};

JobOutcome rank_failed(int exit_code, std::string last_stderr = {}, int host = 0) {
  Cause cause;
  cause.kind = Cause::Kind::kRank;
  cause.host = host;
  cause.exit.rank = 1;
  cause.exit.exit_code = exit_code;
  cause.exit.last_stderr = std::move(last_stderr);
  cause.exit_code = exit_code;
  JobOutcome outcome;
  outcome.cause = std::move(cause);
  return outcome;
}

JobOutcome failed(Cause::Kind kind, std::string_view code, int host = -1) {
  Cause cause;
  cause.kind = kind;
  cause.host = host;
  cause.failure.code = code;
  cause.exit_code = 125;
  JobOutcome outcome;
  outcome.cause = std::move(cause);
  return outcome;
}

RestartPolicy::Decision decide(RestartPolicy& policy, const JobOutcome& outcome,
                               RestartPolicy::End end = {false, Milliseconds(60'000)}) {
  return policy.decide(outcome, kHosts, end);
}

TEST_CASE("A job is started again until its attempts are used up") {
  RestartPolicy policy(2);
  CHECK(decide(policy, rank_failed(1)).again);
  CHECK(policy.count_text() == "restart 1 of 2");
  CHECK(decide(policy, failed(Cause::Kind::kHost, failure::kHostLost, 1)).again);
  const auto last = decide(policy, rank_failed(1));
  CHECK_FALSE(last.again);
  CHECK(last.why_not == "not restarted again: all attempts are used up (--restarts 2)");
  REQUIRE(policy.failed().size() == 3);
  CHECK(policy.failed()[0].cause == "rank 1 on a: exit code 1");
  CHECK(policy.failed()[1].cause == "host b: E_HOST_LOST");
}

TEST_CASE("What ends a job for good") {
  RestartPolicy policy(9);
  CHECK_FALSE(decide(policy, JobOutcome{}).again);
  CHECK_FALSE(decide(policy, rank_failed(1), {.interrupted = true, .ran = {}}).again);
  for (const auto& outcome :
       {failed(Cause::Kind::kSignal, ""), failed(Cause::Kind::kOutputClosed, ""),
        failed(Cause::Kind::kTimeout, failure::kTimeout),
        failed(Cause::Kind::kLaunch, failure::kOutput),
        failed(Cause::Kind::kLaunch, failure::kShip)}) {
    const auto decision = decide(policy, outcome);
    CHECK_FALSE(decision.again);
    CHECK(decision.why_not.empty());
  }
  CHECK(policy.failed().empty());
  CHECK(decide(policy, failed(Cause::Kind::kTimeout, failure::kStartTimeout)).again);
  CHECK(decide(policy, failed(Cause::Kind::kLaunch, failure::kStalled)).again);
}

TEST_CASE("Wrong usage stays wrong") {
  for (const int code : {2, 64, 126, 127}) {
    RestartPolicy policy(9);
    const auto decision = decide(policy, rank_failed(code));
    CHECK_FALSE(decision.again);
    CHECK(decision.why_not ==
          "not restarted: exit code " + std::to_string(code) + " means wrong usage");
  }
  RestartPolicy policy(9);
  JobOutcome interrupted = rank_failed(0);
  interrupted.cause->exit.signal = SIGINT;  // 2, but a signal
  CHECK(decide(policy, interrupted).again);
}

TEST_CASE("The same error at once, again and again") {
  const RestartPolicy::End at_once{false, Milliseconds(500)};
  RestartPolicy policy(9);
  const auto error = [](int port) {
    return rank_failed(1, "Traceback\nOSError: port " + std::to_string(port) + " in use\n\n");
  };
  CHECK(decide(policy, error(1234), at_once).again);
  CHECK(decide(policy, error(99), at_once).again);
  const auto third = decide(policy, error(5), at_once);
  CHECK_FALSE(third.again);
  CHECK(third.why_not == "not restarted again: the same error came at once 3 times");
}

TEST_CASE("Errors that differ, or that come later, are not the same at once") {
  const RestartPolicy::End at_once{false, Milliseconds(500)};
  RestartPolicy other_line(9);
  for (const char* line : {"A", "B", "A", "B", "A"}) {
    CHECK(decide(other_line, rank_failed(1, line), at_once).again);
  }
  RestartPolicy later(9);
  for (int i = 0; i < 5; ++i) CHECK(decide(later, rank_failed(1, "A")).again);
  // A later one in between shows that the program gets further.
  RestartPolicy between(9);
  CHECK(decide(between, rank_failed(1), at_once).again);
  CHECK(decide(between, rank_failed(1), at_once).again);
  CHECK(decide(between, rank_failed(1)).again);
  CHECK(decide(between, rank_failed(1), at_once).again);
  CHECK(decide(between, rank_failed(1), at_once).again);
}

JobSpec job(std::vector<Host> hosts, int num_proc) {
  JobSpec spec;
  spec.hosts = std::move(hosts);
  spec.num_proc = num_proc;
  spec.restart = RestartSpec{.most = 3, .delay = {}, .attempt = 0, .run_id = "id"};
  spec.chaos = ChaosSpec{};
  return spec;
}

TEST_CASE("The next attempt leaves out what failed") {
  const JobSpec spec = job({{"a", "", 2}, {"b", "", 2}, {"spare", "", 2}}, 4);
  const JobSpec same = restarted(spec, rank_failed(1), kHosts);
  CHECK(format_host_list(same.hosts) == "a:2,b:2,spare:2");
  CHECK(same.restart->attempt == 1);
  CHECK_FALSE(same.chaos);
  CHECK(restart_changes(spec, same).empty());

  const JobOutcome lost = failed(Cause::Kind::kHost, failure::kHostLost, 1);
  const JobSpec on_spare = restarted(spec, lost, kHosts);
  CHECK(format_host_list(on_spare.hosts) == "a:2,spare:2");
  CHECK(on_spare.num_proc == 4);
  CHECK(restart_changes(spec, on_spare) == "without host b");

  JobOutcome both = lost;
  both.unconfirmed_hosts = {0, 1};
  const JobSpec smaller = restarted(spec, both, kHosts);
  CHECK(format_host_list(smaller.hosts) == "spare:2");
  CHECK(smaller.num_proc == 2);
  CHECK(restart_changes(spec, smaller) ==
        "without host a, without host b, with 2 ranks instead of 4");
}

TEST_CASE("When no host would be left, all are tried again") {
  JobOutcome lost = failed(Cause::Kind::kHost, failure::kHostLost, 0);
  lost.unconfirmed_hosts = {0, 1};
  const JobSpec spec = job({{"a", "", 2}, {"b", "", 2}, {"c", "", 0}}, 4);
  CHECK(restarted(spec, lost, kHosts).hosts == spec.hosts);
  CHECK(restarted(spec, lost, kHosts).num_proc == 4);
  const JobSpec here = job({}, 4);
  CHECK(restarted(here, lost, kHosts).num_proc == 4);
}

TEST_CASE("Slots of many hosts are more than an int counts") {
  std::vector<Host> hosts{{"a", "", 2}};
  for (int i = 0; i < 40'000; ++i) hosts.push_back({"n" + std::to_string(i), "", 65'536});
  const JobOutcome lost = failed(Cause::Kind::kHost, failure::kHostLost, 0);
  CHECK(restarted(job(hosts, 4), lost, kHosts).num_proc == 4);
}

TEST_CASE("Slots that hosts were named without") {
  JobSpec spec = job({{"a", "", {}}, {"b", "", {}}, {"c", "", {}}}, 5);
  spec.slots_per_host = 2;
  const JobOutcome lost = failed(Cause::Kind::kHost, failure::kHostLost, 0);
  CHECK(restarted(spec, lost, kHosts).num_proc == 4);
  spec.slots_per_host.reset();
  spec.slots_per_host_auto = true;
  CHECK(restarted(spec, lost, kHosts).num_proc == 5);
}

}  // namespace
}  // namespace hora::launcher
