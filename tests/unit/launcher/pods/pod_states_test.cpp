// SPDX-License-Identifier: Apache-2.0
// What an API server has printed, cut down to what is read.
#include "launcher/pods/pod_states.h"

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

using Phase = PodState::Phase;

std::string list(const std::string& items) { return R"({"kind":"List","items":[)" + items + "]}"; }

std::string pod(const std::string& name, const std::string& status,
                const std::string& metadata = "") {
  return R"({"metadata":{"name":")" + name + "\"" + metadata +
         R"(},"spec":{"nodeName":"node1","containers":[{"name":"worker"}]},"status":)" + status +
         "}";
}

PodState the_pod(const std::string& status, const std::string& metadata = "") {
  const auto pods = read_pod_states(list(pod("p", status, metadata)));
  REQUIRE(pods);
  REQUIRE(pods->size() == 1);
  return pods->front();
}

const std::string kRuns =
    R"({"phase":"Running","containerStatuses":[{"name":"worker","state":{"running":{}}}]})";

TEST_CASE("A pod runs when its worker runs") {
  const PodState pod = the_pod(kRuns);
  CHECK(pod.phase == Phase::kRunning);
  CHECK(pod.container == "worker");
  CHECK(pod.node == "node1");
  CHECK(pod.words.empty());
}

TEST_CASE("A pod that waits says why") {
  const PodState image = the_pod(
      R"({"phase":"Pending","containerStatuses":[{"name":"worker","state":{"waiting":
      {"reason":"ErrImagePull","message":"rpc error:\nnot found"}}}]})");
  CHECK(image.phase == Phase::kPending);
  CHECK(image.words == "ErrImagePull: rpc error: not found");
  CHECK(image.hopeless);
  const PodState unschedulable = the_pod(
      R"({"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False",
      "reason":"Unschedulable","message":"0/2 nodes are available"}]})");
  CHECK(unschedulable.words == "Unschedulable: 0/2 nodes are available");
  CHECK_FALSE(unschedulable.hopeless);
  const PodState starts = the_pod(
      R"({"phase":"Pending","containerStatuses":[{"name":"worker","state":{"waiting":
      {"reason":"ContainerCreating"}}}]})");
  CHECK(starts.words.empty());
}

TEST_CASE("A pod that has come to its end says how") {
  const PodState killed = the_pod(
      R"({"phase":"Failed","containerStatuses":[{"name":"worker","state":{"terminated":
      {"reason":"OOMKilled","exitCode":137}}}]})");
  CHECK(killed.phase == Phase::kEnded);
  CHECK(killed.words == "OOMKilled (exit code 137)");
  const PodState evicted = the_pod(
      R"({"phase":"Failed","reason":"Evicted","message":"The node was low on resource: memory."})");
  CHECK(evicted.words == "Evicted: The node was low on resource: memory.");
  const PodState leaving = the_pod(kRuns, R"(,"deletionTimestamp":"2026-01-01T00:00:00Z")");
  CHECK(leaving.leaving);
  CHECK(leaving.words == "it is being deleted");
  const PodState disrupted = the_pod(
      R"({"phase":"Running","containerStatuses":[{"name":"worker","state":{"running":{}}}],
      "conditions":[{"type":"DisruptionTarget","status":"True","reason":"PreemptionByScheduler",
      "message":"preempted by a pod of higher priority"}]})");
  CHECK(disrupted.leaving);
  CHECK(disrupted.words == "PreemptionByScheduler: preempted by a pod of higher priority");
}

TEST_CASE("The pods are ready when all of them run") {
  const auto two = read_pod_states(list(pod("b", kRuns) + "," + pod("a", kRuns)));
  REQUIRE(two);
  CHECK(two->front().name == "a");
  CHECK(judge_pods(*two, 2) == PodsVerdict::kReady);
  CHECK(judge_pods(*two, 3) == PodsVerdict::kStarting);
  CHECK(pods_text(*two, 3, "FailedCreate: exceeded quota") ==
        "2 of 3 pods run; FailedCreate: exceeded quota");
  auto ended = *two;
  ended[0].phase = Phase::kEnded;
  ended[0].words = "Evicted";
  CHECK(judge_pods(ended, 2) == PodsVerdict::kEnded);
  CHECK(pods_text(ended, 2, "") == "1 of 2 pods run; a on node1: Evicted");
}

TEST_CASE("The pod that ended the job comes before those that are deleted because of it") {
  const auto deleted = [](const std::string& name, const std::string& when) {
    return pod(name, kRuns, R"(,"deletionTimestamp":"2026-01-01T00:00:)" + when + R"(Z")");
  };
  const std::string evicted =
      pod("d", R"({"phase":"Failed","reason":"Evicted","message":"low on memory"})");
  const auto names_of = [](const std::vector<PodState>& pods) {
    std::string names;
    for (const PodState& each : pods) names += each.name;
    return names;
  };
  auto pods = read_pod_states(
      list(deleted("a", "32") + "," + deleted("b", "31") + "," + pod("c", kRuns) + "," + evicted));
  REQUIRE(pods);
  const auto lost = lost_pods(*pods, {"a", "b", "c", "d"});
  CHECK(names_of(lost) == "dba");
  CHECK(pods_text(lost, 4, "").find("; d on node1: Evicted: low on memory;") != std::string::npos);
  CHECK(lost[1].words_are_ours);
  // One that is gone altogether was deleted before the others; pods of other jobs do not count.
  CHECK(names_of(lost_pods(*pods, {"a", "e"})) == "ea");
  CHECK(lost_pods(*pods, {"c"}).empty());
}

TEST_CASE("The exit of a deleted pod's containers is not a reason") {
  const std::string status =
      R"({"phase":"Running","containerStatuses":[{"name":"worker","state":{"terminated":
         {"reason":"Error","exitCode":137}}}]})";
  const PodState leaving = the_pod(status, R"(,"deletionTimestamp":"2026-01-01T00:00:00Z")");
  CHECK(leaving.words == "it is being deleted");
  CHECK(leaving.words_are_ours);
  CHECK(the_pod(status).words == "Error (exit code 137)");
  CHECK(the_pod(status).phase == Phase::kEnded);
}

TEST_CASE("A pod that ended without work has not ended the job") {
  const PodState idle = the_pod(
      R"({"phase":"Failed","containerStatuses":[{"name":"worker","state":{"terminated":
         {"reason":"Error","exitCode":1,"message":"no horarun works in this pod any more\n"}}}]})");
  CHECK(idle.phase == Phase::kEnded);
  CHECK(lost_pods({idle}, {idle.name}).empty());
}

TEST_CASE("What should be a list and is none is empty") {
  CHECK(read_pod_states(R"({"items":7})")->empty());
  CHECK(the_pod(R"({"phase":"Running","conditions":"x","containerStatuses":1})").words.empty());
}

TEST_CASE("What a program has left as its last words steers no terminal, and has an end") {
  const PodState pod =
      the_pod(R"({"phase":"Failed","reason":"Error","message":"\u001b[31mr\u001b[2Ked\nline)" +
              std::string(1000, 'x') + "\"}");
  CHECK(pod.words.starts_with("Error: r?[2Ked line"));
  CHECK(pod.words.size() <= 400);
  CHECK(pods_text({pod}, 1, "of \x1b[1A").ends_with("; of ?[1A"));
}

TEST_CASE("The name of a Job, its pods and their GPUs are read") {
  const auto job = read_pod_job(
      R"({"kind":"Job","metadata":{"name":"hora-x"},"spec":{"parallelism":3,"template":{"spec":
      {"containers":[{"name":"worker","resources":{"limits":{"nvidia.com/gpu":"8"}}}]}}},
      "status":{"conditions":[{"type":"Failed","status":"True","reason":"DeadlineExceeded",
      "message":"too late"}]}})");
  REQUIRE(job);
  CHECK(job->name == "hora-x");
  CHECK(job->workers == 3);
  CHECK(job->gpus == 8);
  CHECK(job->words == "DeadlineExceeded: too late");
  CHECK(read_pod_job(R"({"kind":"Pod","metadata":{"name":"p"}})").error().message ==
        "expected one Job of batch/v1, found a Pod");
  CHECK_FALSE(read_pod_job("Error from server"));
  CHECK_FALSE(read_pod_job(R"({"kind":"Job","metadata":{"name":"j"},"spec":{"parallelism":0}})"));
}

TEST_CASE("The latest relevant event counts") {
  const auto words = read_last_event(list(
      R"({"type":"Warning","reason":"FailedCreate","message":"old","lastTimestamp":"2026-01-01T00:00:01Z"},
      {"type":"Warning","reason":"FailedCreate","message":"new","lastTimestamp":"2026-01-01T00:00:03Z"},
      {"type":"Normal","reason":"Scheduled","message":"x","lastTimestamp":"2026-01-01T00:00:09Z"})"));
  REQUIRE(words);
  CHECK(*words == "FailedCreate: new");
  CHECK(*read_last_event(list("")) == "");
}

TEST_CASE("Fields of another type count as missing") {
  const auto pods = read_pod_states(
      R"({"items":[7,{"metadata":"x","status":{"containerStatuses":"y","conditions":{"a":1}}}]})");
  REQUIRE(pods);
  CHECK(pods->size() == 2);
  CHECK(judge_pods(*pods, 2) == PodsVerdict::kStarting);
}

}  // namespace
}  // namespace hora::launcher
