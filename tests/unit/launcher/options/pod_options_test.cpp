// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/pod_options.h"

#include "tests/support/catch.h"
#include "tests/unit/launcher/options/parsing.h"

namespace hora::launcher {
namespace {

TEST_CASE("Jobs in pods of their own") {
  const JobSpec job = job_of({"k8s", "--image", "python:3.12", "--workers", "4", "-np", "6",
                              "--namespace", "team", "--shm", "2Gi", "--kubectl", "k3s kubectl",
                              "--start-timeout", "30m", "python", "train.py"});
  REQUIRE(job.pods);
  CHECK(job.pods->image == "python:3.12");
  CHECK(job.pods->workers == 4);
  CHECK(job.pods->name_space == "team");
  CHECK(job.pods->shm == "2Gi");
  CHECK(job.pods->kubectl == Words{"k3s", "kubectl"});
  CHECK(job.pods->patience == std::chrono::minutes(30));
  CHECK(job.command == Words{"python", "train.py"});
  CHECK_FALSE(job.local_directly);
  CHECK_FALSE(job_of({"-np", "1", "x"}).pods);
  // As many as the GPUs fill.
  CHECK(job_of({"k8s", "--image", "i", "--gpus-per-worker", "8", "-np", "20", "x"}).pods->workers ==
        3);

  // Several programs share the pods.
  CHECK(job_of({"k8s", "--image", "i", "--gpus-per-worker", "2", "-np", "2", "a", ":", "-np", "4",
                "b"})
            .pods->workers == 3);

  // Pods reach a launcher that is in one, too.
  const auto dials = [](const std::string& choice, const Variables& variables) {
    return job_of({"k8s", "--image", "i", "--workers", "1", "--dial", choice, "x"}, variables)
        .pods->dial;
  };
  const Variables in_a_pod{{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}};
  CHECK_FALSE(job.pods->dial);
  CHECK_FALSE(dials("auto", {}));
  CHECK(dials("auto", in_a_pod));
  CHECK(dials("yes", {}));
  CHECK_FALSE(dials("no", in_a_pod));

  const Words image{"k8s", "--image", "i"};
  const auto wrong = [&](Words more) {
    more.insert(more.begin(), image.begin(), image.end());
    more.push_back("x");
    return error_of(more);
  };
  CHECK(wrong({"-np", "2"}) == "how many pods? expected --workers N");
  CHECK(wrong({"-np", "2", "--workers", "3"}) == "-np 2 leaves some of --workers 3 without a rank");
  CHECK(wrong({"--workers", "2", "--shm", "2GB"}) ==
        "--shm: expected a quantity of Kubernetes such as 4, 500m or 2Gi, found '2GB'");
  CHECK(error_of({"k8s", "--workers", "2", "x"}) ==
        "which image? expected --image IMAGE, or --manifest FILE");
  CHECK(error_of({"k8s", "--manifest", "f", "--shm", "2Gi", "x"}) ==
        "--shm cannot be used with --manifest: the manifest says it");
  CHECK(wrong({"--workers", "2", "-H", "a"}).find("unknown option '-H'") == 0);
  CHECK(error_of({"--workers", "2", "x"}) ==
        "unknown option '--workers' here; it belongs to 'horarun k8s'");
}

TEST_CASE("a job in pods starts in the container's folder, or in one that is named from there") {
  const auto folder_of = [](const Words& options) {
    Words words{"k8s", "--image", "i", "--workers", "1"};
    words.insert(words.end(), options.begin(), options.end());
    return job_of(words).working_directory;
  };
  CHECK(folder_of({"x"}) == "/proc/1/cwd");
  CHECK(folder_of({"--wdir", "src", "x"}) == "/proc/1/cwd/src");
  CHECK(folder_of({"--wdir", "/src", "x"}) == "/src");
}

}  // namespace
}  // namespace hora::launcher
