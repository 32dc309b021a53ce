// SPDX-License-Identifier: Apache-2.0
// The programs that run an image, as a table: which images each takes, and the words that start
// the agent in one.  [pure]
//
// One container for each host, and the agent in it, with all that it starts. It gets the host's
// network, shared memory, user and devices; its home and working folder lie at the same paths. The
// agent's stream is the container's stdin and stdout.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hora::launcher {

struct ContainerSpec {
  std::string image;    // --container: a name, as registries know it, or an absolute path
  std::string runtime;  // --container-runtime; empty: the first one that a host has
  std::string args;     // --container-args: words of a shell
};

// An image is a file or folder if it begins with '/', './' or '../', or ends in ".sif".
bool is_image_path(std::string_view image);

// A host, as far as the words depend on it.
struct ContainerHost {
  unsigned uid = 0;
  unsigned gid = 0;
  bool image_is_folder = false;
  bool has_nvidia = false;
  bool has_nvidia_cdi = false;         // a description of the GPUs for podman
  std::vector<std::string> devices;    // such as /dev/infiniband
  std::vector<std::string> folders;    // to be seen inside at the same path
  std::vector<std::string> variables;  // names of those that the container gets
};

struct ContainerStart {
  std::string name;                // of the container
  std::vector<std::string> args;   // the user's own, in words
  std::vector<std::string> agent;  // its program and arguments
};

struct ContainerRuntime {
  std::string_view name;     // of --container-runtime
  std::string_view program;  // that is looked for in PATH
  bool (*takes)(std::string_view image, bool is_folder);
  std::vector<std::string> (*start)(const std::string& image, const ContainerHost& host,
                                    const ContainerStart& start);
  // In front of the container's name: removes it, and what runs in it. Empty: there is nothing to
  // remove once its processes have ended.
  std::span<const std::string_view> removal;
};

// In the order in which a host looks for them; two programs may have one name. Apptainer comes
// first, as its containers are plain processes: they need neither a daemon nor subordinate user
// ids, and have the limits and devices of the allocation. Podman needs no daemon either. Docker is
// the last, because who may use it is root in all but name.
std::span<const ContainerRuntime> container_runtimes();
// Those of them that take this image, of one name or, if that is empty, of any.
std::vector<const ContainerRuntime*> runtimes_for(std::string_view image, bool image_is_folder,
                                                  std::string_view name);
// "apptainer|podman|docker"
inline constexpr std::string_view kContainerRuntimes = "apptainer|podman|docker";

// Variables that say where software lies: those of the image count in it.
bool is_variable_of_image(std::string_view name);

}  // namespace hora::launcher
