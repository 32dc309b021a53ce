// SPDX-License-Identifier: Apache-2.0
#include "launcher/plan/container.h"

#include <algorithm>
#include <utility>

namespace hora::launcher {

namespace {

constexpr std::string_view kDockerScheme = "docker://";

bool has_scheme(std::string_view image) { return image.find("://") != std::string_view::npos; }

// As the three read it, a field of CSV: a comma or a quote in it needs quotes around it.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

// The long form: in the short one a path could have no colon.
void add_mounts(const ContainerHost& host, std::vector<std::string>& words) {
  for (const std::string& folder : host.folders) {
    words.insert(words.end(), {"--mount", "type=bind," + csv_field("source=" + folder) + "," +
                                              csv_field("destination=" + folder)});
  }
}

void append(std::vector<std::string>& words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

// The rest of its words: what Docker and Podman have in common. Names without values, so that no
// value can be seen in a list of processes.
void add_oci_words(const ContainerHost& host, const ContainerStart& start, const std::string& image,
                   std::vector<std::string>& words) {
  append(words, {"--rm", "-i", "--name", start.name, "--network=host", "--ipc=host",
                 "--security-opt=label=disable"});
  for (const std::string& device : host.devices) words.push_back("--device=" + device);
  for (const std::string& name : host.variables) append(words, {"--env", name});
  add_mounts(host, words);
  append(words, start.args);
  append(words, {"--entrypoint", start.agent.front()});
  // What is written goes elsewhere: other hosts may see the same folder.
  if (host.image_is_folder) words.emplace_back("--rootfs");
  words.push_back(host.image_is_folder ? image + ":O" : image);
  words.insert(words.end(), start.agent.begin() + 1, start.agent.end());
}

// The user's own choice of devices.
bool is_mentioned(const std::vector<std::string>& args, std::string_view what) {
  return std::any_of(args.begin(), args.end(), [what](const std::string& word) {
    return word.find(what) != std::string::npos;
  });
}

// It has the host's network, processes, /dev, home, /tmp and environment by itself.
template <bool kIsSingularity>
std::vector<std::string> apptainer_words(const std::string& image, const ContainerHost& host,
                                         const ContainerStart& start) {
  std::vector<std::string> words{kIsSingularity ? "singularity" : "apptainer", "--quiet",
                                 "--nocolor", "exec"};
  if (host.has_nvidia) words.emplace_back("--nv");
  add_mounts(host, words);
  append(words, start.args);
  const bool is_complete = is_image_path(image) || has_scheme(image);
  words.push_back(is_complete ? image : std::string(kDockerScheme) + image);
  append(words, start.agent);
  return words;
}

// Without a cgroup of its own it stays in that of the host's agent: in an allocation, its limits
// and devices are those of the job. Without a log the container has the agent's stream itself.
std::vector<std::string> podman_words(const std::string& image, const ContainerHost& host,
                                      const ContainerStart& start) {
  std::vector<std::string> words{"podman", "run", "--cgroups=disabled", "--log-driver=passthrough"};
  if (host.uid != 0) words.emplace_back("--userns=keep-id");
  if (host.has_nvidia_cdi && !is_mentioned(start.args, "nvidia.com/gpu")) {
    words.emplace_back("--device=nvidia.com/gpu=all");
  }
  add_oci_words(host, start, image, words);
  return words;
}

// Its daemon makes the container, for whichever user it is asked to; the command's end is not the
// container's.
std::vector<std::string> docker_words(const std::string& image, const ContainerHost& host,
                                      const ContainerStart& start) {
  std::vector<std::string> words{
      "docker", "run", "--user=" + std::to_string(host.uid) + ":" + std::to_string(host.gid)};
  if (host.has_nvidia && !is_mentioned(start.args, "--gpus")) words.emplace_back("--gpus=all");
  const bool has_docker_scheme = image.starts_with(kDockerScheme);
  add_oci_words(host, start, has_docker_scheme ? image.substr(kDockerScheme.size()) : image, words);
  return words;
}

constexpr std::string_view kPodmanRemoval[] = {"podman", "rm", "--force", "--ignore", "--time=0"};
constexpr std::string_view kDockerRemoval[] = {"docker", "rm", "--force"};

bool is_any(std::string_view, bool) { return true; }
bool is_for_docker(std::string_view image, bool) {
  return !is_image_path(image) && (!has_scheme(image) || image.starts_with(kDockerScheme));
}
bool is_for_podman(std::string_view image, bool is_folder) {
  return is_folder || is_for_docker(image, false);
}

constexpr ContainerRuntime kRuntimes[] = {
    {"apptainer", "apptainer", is_any, apptainer_words<false>, {}},
    {"apptainer", "singularity", is_any, apptainer_words<true>, {}},
    {"podman", "podman", is_for_podman, podman_words, kPodmanRemoval},
    {"docker", "docker", is_for_docker, docker_words, kDockerRemoval},
};

// Of the shell, the login or the machine, where an image has its own.
constexpr std::string_view kOfImage[] = {
    "PATH",      "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT",      "PYTHONHOME",
    "CUDA_HOME", "CUDA_PATH",  "VIRTUAL_ENV",     "SSL_CERT_FILE", "SSL_CERT_DIR"};

}  // namespace

bool is_image_path(std::string_view image) {
  return image.starts_with("/") || image.starts_with("./") || image.starts_with("../") ||
         image == "." || image == ".." || (image.ends_with(".sif") && !has_scheme(image));
}

std::span<const ContainerRuntime> container_runtimes() { return kRuntimes; }

std::vector<const ContainerRuntime*> runtimes_for(std::string_view image, bool image_is_folder,
                                                  std::string_view name) {
  std::vector<const ContainerRuntime*> fit;
  for (const ContainerRuntime& each : kRuntimes) {
    const bool is_wanted = name.empty() || name == each.name;
    if (is_wanted && each.takes(image, image_is_folder)) fit.push_back(&each);
  }
  return fit;
}

bool is_variable_of_image(std::string_view name) {
  return name.starts_with("CONDA_") ||
         std::find(std::begin(kOfImage), std::end(kOfImage), name) != std::end(kOfImage);
}

}  // namespace hora::launcher
