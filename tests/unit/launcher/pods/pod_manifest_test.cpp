// SPDX-License-Identifier: Apache-2.0
#include "launcher/pods/pod_manifest.h"

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

JobSpec job(PodsSpec pods) {
  JobSpec spec;
  spec.pods = std::move(pods);
  return spec;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("A manifest has what was asked for, and an end of its own") {
  PodsSpec pods;
  pods.image = "python:3.12";
  pods.workers = 4;
  pods.gpus = 2;
  pods.cpus = "500m";
  pods.memory = "16Gi";
  pods.shm = "2Gi";
  pods.timeout = std::chrono::seconds(600);
  const std::string text = pod_manifest(job(pods));
  for (const char* part :
       {"apiVersion: batch/v1\nkind: Job\nmetadata:\n  generateName: hora-\n", "  completions: 4\n",
        "  parallelism: 4\n", "  backoffLimit: 0\n", "  activeDeadlineSeconds: 660\n",
        "  ttlSecondsAfterFinished: 60\n", "image: \"python:3.12\"\n",
        ("            limits:\n              cpu: \"500m\"\n              memory: \"16Gi\"\n"
         "              nvidia.com/gpu: 2\n"),
        "sizeLimit: \"2Gi\"\n", "args:\n            - \"660\"\n            - \"60\"\n"}) {
    INFO(part);
    CHECK(contains(text, part));
  }
  INFO(text);
  CHECK(contains(text, "- |\n              # horarun reaches this pod"));
  CHECK(contains(text, "echo '" + std::string(kNoLauncher) + "' >/dev/termination-log"));
}

TEST_CASE("A manifest says nothing of what was not asked for") {
  PodsSpec pods;
  pods.image = "busybox";
  const std::string text = pod_manifest(job(pods));
  CHECK_FALSE(contains(text, "resources"));
  CHECK_FALSE(contains(text, "sizeLimit"));
  CHECK(contains(text, "medium: Memory"));
}

TEST_CASE("Pods wait for the next attempt of a job that is started again") {
  PodsSpec pods;
  pods.image = "busybox";
  JobSpec spec = job(pods);
  spec.restart =
      RestartSpec{.most = 1, .delay = std::chrono::seconds(30), .attempt = 0, .run_id = {}};
  CHECK(contains(pod_manifest(spec), "args:\n            - \"660\"\n            - \"90\"\n"));
}

TEST_CASE("YAML keeps strings that look like something else") {
  using Json = nlohmann::ordered_json;
  CHECK(yaml_text(Json{{"a", "true"}, {"b", "No"}, {"c", "1e3"}, {"d", "x: y"}, {"e", ""}}) ==
        "a: \"true\"\nb: \"No\"\nc: \"1e3\"\nd: \"x: y\"\ne: \"\"\n");
  CHECK(yaml_text(Json{{"n", 7}, {"f", false}, {"w", "Never"}, {"o", Json::object()}}) ==
        "\"n\": 7\nf: false\nw: Never\no: {}\n");
  CHECK(yaml_text(Json{{"l", {"a", {{"k", "v"}, {"m", {"x"}}}}}}) ==
        "l:\n  - a\n  - k: v\n    m:\n      - x\n");
  CHECK(yaml_text(Json{{"s", {"one\n  two\n\nthree\n"}}}) ==
        "s:\n  - |\n    one\n      two\n    \n    three\n");
}

}  // namespace
}  // namespace hora::launcher
