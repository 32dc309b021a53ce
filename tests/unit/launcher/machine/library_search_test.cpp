// SPDX-License-Identifier: Apache-2.0
#include "launcher/machine/library_search.h"

#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/launcher/machine/small_elf.h"

namespace hora::launcher {
namespace {

namespace fs = std::filesystem;

// A machine's root with libraries.
class Root {
 public:
  void add(const std::string& path, const SmallElf& file = {}) const {
    fs::create_directories((path_ + path).substr(0, (path_ + path).rfind('/')));
    std::ofstream(path_ + path) << file.bytes();
  }
  LibrarySearch search(std::vector<std::string> folders = {}) const {
    return LibrarySearch(std::move(folders), path_);
  }

 private:
  test::TemporaryDirectory root_;
  const std::string path_ = root_.path();
};

std::string path_of(const std::optional<FoundLibrary>& found) { return found ? found->path : ""; }

TEST_CASE("library search: the program's folders come before the system's") {
  const Root root;
  root.add("/usr/lib/liba.so.1");
  CHECK(path_of(root.search().find("liba.so.1")) == "/usr/lib/liba.so.1");
  CHECK(path_of(root.search().find("libb.so.1")).empty());
  root.add("/opt/mpi/lib/liba.so.1");
  CHECK(path_of(root.search().find("liba.so.1")) == "/usr/lib/liba.so.1");
  CHECK(path_of(root.search({"/none", "/opt/mpi/lib"}).find("liba.so.1")) ==
        "/opt/mpi/lib/liba.so.1");
}

TEST_CASE("library search: a file for another processor, or none at all, is passed over") {
  const Root root;
  SmallElf other;
  other.machine = EM_VAX;
  root.add("/opt/liba.so.1", other);
  root.add("/usr/lib/liba.so.1");
  CHECK(path_of(root.search({"/opt"}).find("liba.so.1")) == "/usr/lib/liba.so.1");
}

TEST_CASE("library search: with what it needs, and what that needs") {
  const Root root;
  root.add("/opt/lib/liba.so.1", {{"libb.so.1", "libc.so.6"}, "$ORIGIN/deps"});
  root.add("/opt/lib/deps/libb.so.1", {{"libc2.so.1", "libdl.so.2"}});
  const LibrarySearch search = root.search({"/opt/lib"});
  const auto lacking = search.find_with_needs("liba.so.1");
  REQUIRE_FALSE(lacking);
  CHECK(lacking.error().message == "/opt/lib/deps/libb.so.1 needs libc2.so.1, which was not found");
  // In a circle.
  root.add("/usr/lib/libc2.so.1", {{"liba.so.1"}});
  const auto whole = search.find_with_needs("liba.so.1");
  REQUIRE(whole);
  std::vector<std::string> paths;
  for (const FoundLibrary& each : *whole) paths.push_back(each.path);
  CHECK(paths == std::vector<std::string>{"/opt/lib/liba.so.1", "/opt/lib/deps/libb.so.1",
                                          "/usr/lib/libc2.so.1"});
  CHECK(search.find_with_needs("libnone.so.1").error().message == "libnone.so.1 was not found");
}

TEST_CASE("library search: run paths as the loader reads them") {
  CHECK(run_path_folders("$ORIGIN/../lib:/a:${ORIGIN}:relative::$LIB/x", "/opt/bin/program") ==
        std::vector<std::string>{"/opt/bin/../lib", "/a", "/opt/bin"});
  CHECK(absolute_folders("/a::b:/c") == std::vector<std::string>{"/a", "/c"});
}

TEST_CASE("library search: this machine's C library is where its loader finds it") {
  const auto found = LibrarySearch({}).find("libc.so.6");
  REQUIRE(found);
  CHECK(found->elf.machine == own_elf_machine());
  CHECK(is_of_glibc("libc.so.6"));
  CHECK_FALSE(is_of_glibc("libcuda.so.1"));
}

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
  // Programs that an environment installs are next to its python.
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
