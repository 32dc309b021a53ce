// SPDX-License-Identifier: Apache-2.0
#include "launcher/libraries/program_folders.h"

#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace hora::launcher {
namespace {

namespace fs = std::filesystem;
using Folders = std::vector<std::string>;

class Scene {
 public:
  std::string folder(const std::string& path) const {
    fs::create_directories(path_ / path);
    return path_ / path;
  }
  std::string file(const std::string& path) const {
    folder(fs::path(path).parent_path());
    std::ofstream(path_ / path) << "x";
    return path_ / path;
  }
  void link(const std::string& path, const std::string& target) const {
    folder(fs::path(path).parent_path());
    fs::create_symlink(path_ / target, path_ / path);
  }
  std::string at(const std::string& path) const { return path_ / path; }

 private:
  test::TemporaryDirectory root_;
  const fs::path path_ = root_.path();
};

TEST_CASE("wheels are among the packages of the program's Python") {
  const Scene scene;
  const std::string python = scene.file("usr/bin/python3.11");
  const std::string system = scene.folder("usr/lib/python3/dist-packages/nvidia/nccl/lib");
  const std::string local = scene.folder("usr/local/lib/python3.11/dist-packages/nvidia/cu13/lib");
  scene.folder("usr/lib/python3/dist-packages/nvidia/cublas");  // without a lib
  scene.folder("usr/lib/ruby/site-packages/nvidia/nccl/lib");
  CHECK(wheel_folders(python) == Folders{system, local});

  // An environment's python is a link; its own packages come first.
  scene.link("venv/bin/python", "usr/bin/python3.11");
  const std::string own = scene.folder("venv/lib/python3.11/site-packages/nvidia/nccl/lib");
  CHECK(wheel_folders(scene.at("venv/bin/python")) == Folders{own, system, local});
  // Programs that an environment installs are beside its python.
  CHECK(wheel_folders(scene.file("venv/bin/torchrun")) == Folders{own});
  CHECK(wheel_folders("python3").empty());
  CHECK(wheel_folders("").empty());
  CHECK(wheel_folders("/nowhere/bin/python3").empty());
}

TEST_CASE("wheels are in the folders of PYTHONPATH") {
  const Scene scene;
  const std::string own = scene.folder("packages/nvidia/nccl/lib");
  CHECK(wheel_folders_in(scene.at("none") + ":packages::" + scene.at("packages")) == Folders{own});
  CHECK(wheel_folders_in("").empty());
}

TEST_CASE("a program's run path is read from its file") {
  CHECK(program_folders("relative").empty());
  CHECK(program_folders("/nowhere").empty());
  CHECK(program_folders("/etc/passwd").empty());
}

}  // namespace
}  // namespace hora::launcher
