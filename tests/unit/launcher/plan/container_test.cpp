// SPDX-License-Identifier: Apache-2.0
#include "launcher/plan/container.h"

#include <algorithm>

#include "rendezvous/base/text.h"
#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

ContainerHost host() {
  ContainerHost host;
  host.uid = 1000;
  host.gid = 100;
  host.folders = {"/home/me", "/work/a b"};
  host.variables = {"HOME", "TOKEN"};
  return host;
}

const ContainerRuntime& runtime(std::string_view program) {
  const auto all = container_runtimes();
  return *std::find_if(all.begin(), all.end(),
                       [&](const auto& each) { return each.program == program; });
}

std::string words(std::string_view program, const std::string& image,
                  const ContainerHost& of = host(), std::vector<std::string> args = {}) {
  const ContainerStart start{"hora-1", std::move(args), {"/c/agent-1", "agent", "--probe"}};
  return join(runtime(program).start(image, of, start), " ");
}

bool has(const std::string& text, std::string_view what) {
  return text.find(what) != std::string::npos;
}

TEST_CASE("images are names or paths") {
  for (const char* path : {"/a", "./a", "../a", ".", "a.sif", "a/b.sif"}) {
    CHECK(is_image_path(path));
  }
  for (const char* name : {"python:3.12", "docker://a/b", "oras://x/y.sif", "a/b", ".hidden"}) {
    CHECK_FALSE(is_image_path(name));
  }
}

TEST_CASE("each runtime takes its own images") {
  const auto takers = [](std::string_view image, bool is_folder) {
    std::string names;
    for (const ContainerRuntime& each : container_runtimes()) {
      if (each.takes(image, is_folder)) names += std::string(each.program) + " ";
    }
    return names;
  };
  CHECK(takers("python:3.12", false) == "apptainer singularity podman docker ");
  CHECK(takers("docker://python", false) == "apptainer singularity podman docker ");
  CHECK(takers("/images/a.sif", false) == "apptainer singularity ");
  CHECK(takers("/images/a", true) == "apptainer singularity podman ");
  CHECK(takers("oras://a/b", false) == "apptainer singularity ");
}

TEST_CASE("apptainer") {
  CHECK(words("apptainer", "python:3.12", host(), {"--bind", "/d"}) ==
        "apptainer --quiet --nocolor exec --mount type=bind,source=/home/me,destination=/home/me "
        "--mount type=bind,source=/work/a b,destination=/work/a b --bind /d docker://python:3.12 "
        "/c/agent-1 agent --probe");
  ContainerHost with_gpu = host();
  with_gpu.has_nvidia = true;
  CHECK(has(words("singularity", "/a.sif", with_gpu), "singularity --quiet --nocolor exec --nv "));
  CHECK(has(words("apptainer", "/a.sif"), " /a.sif /c/agent-1"));
}

TEST_CASE("podman") {
  CHECK(words("podman", "python:3.12", host(), {"--read-only"}) ==
        "podman run --cgroups=disabled --log-driver=passthrough --userns=keep-id "
        "--rm -i --name hora-1 --network=host --ipc=host --security-opt=label=disable --env HOME "
        "--env TOKEN --mount type=bind,source=/home/me,destination=/home/me --mount "
        "type=bind,source=/work/a b,destination=/work/a b --read-only --entrypoint /c/agent-1 "
        "python:3.12 agent --probe");
  ContainerHost root = host();
  root.uid = 0;
  root.image_is_folder = root.has_nvidia = root.has_nvidia_cdi = true;
  root.devices = {"/dev/infiniband"};
  const std::string rooted = words("podman", "/images/a", root);
  CHECK_FALSE(has(rooted, "keep-id"));
  CHECK(has(rooted, "--device=nvidia.com/gpu=all "));
  CHECK(has(rooted, "--device=/dev/infiniband "));
  CHECK(has(rooted, "--entrypoint /c/agent-1 --rootfs /images/a:O agent"));
  CHECK_FALSE(has(words("podman", "a", root, {"--device=nvidia.com/gpu=0"}), "gpu=all"));
}

TEST_CASE("docker") {
  ContainerHost with_gpu = host();
  with_gpu.has_nvidia = true;
  const std::string gpu = words("docker", "docker://a/b:1", with_gpu);
  CHECK(has(gpu, "docker run --user=1000:100 --gpus=all --rm -i --name hora-1 "));
  CHECK(has(gpu, " --entrypoint /c/agent-1 a/b:1 agent --probe"));
  CHECK_FALSE(has(words("docker", "a", with_gpu, {"--gpus", "device=1"}), "--gpus=all"));
}

TEST_CASE("folders with signs of CSV") {
  ContainerHost odd;
  odd.folders = {"/a,b:\"c\""};
  CHECK(
      has(words("docker", "x", odd), R"(type=bind,"source=/a,b:""c""","destination=/a,b:""c""")"));
}

TEST_CASE("the image's own software counts in it") {
  for (const char* name : {"PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CONDA_PREFIX"}) {
    CHECK(is_variable_of_image(name));
  }
  for (const char* name : {"HOME", "WANDB_API_KEY", "PYTHONPATH", "CUDA_VISIBLE_DEVICES"}) {
    CHECK_FALSE(is_variable_of_image(name));
  }
}

}  // namespace
}  // namespace hora::launcher
