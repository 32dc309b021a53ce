// SPDX-License-Identifier: Apache-2.0
#include "launcher/parts/vendor_parts.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

using namespace hora::launcher;

TEST_CASE("licence texts of the packages that own files") {
  if (::access("/var/lib/dpkg/info/dpkg.list", R_OK) != 0) return;  // another package manager
  // Named as its package does not: /bin is /usr/bin, or the other way round.
  for (const char* path : {"/usr/bin/dpkg", "/bin/dpkg"}) {
    const auto found = find_licence_files({path, "/no/such/file"});
    REQUIRE(found.size() == 1);
    CHECK(found[0].package == "dpkg");
    CHECK(found[0].path == "/usr/share/doc/dpkg/copyright");
  }
  // The list of a package that is there for several architectures has one in its name.
  const auto found = find_licence_files({"/usr/share/doc/libc6/copyright"});
  REQUIRE(found.size() == 1);
  CHECK(found[0].package == "libc6");
  CHECK(find_licence_files({"/no/such/file"}).empty());
  CHECK(find_licence_files({}).empty());
}

namespace hora::launcher {

// Any shared library serves as NCCL here: which files are found and sent does not depend on their
// code.

namespace {

namespace fs = std::filesystem;

class Scene {
 public:
  // The program that runs is an ELF file, too.
  std::string library(const std::string& folder) const {
    fs::create_directories(path_ / folder);
    fs::copy_file(fs::read_symlink("/proc/self/exe"), path_ / folder / kNcclSoname);
    return path_ / folder;
  }
  std::string text(const std::string& path) const {
    fs::create_directories((path_ / path).parent_path());
    std::ofstream(path_ / path) << "a licence";
    return path_ / path;
  }

 private:
  test::TemporaryDirectory root_;
  const fs::path path_ = root_.path();
};

TEST_CASE("NCCL: its licence is where wheels, prefixes and archives have it") {
  const Scene scene;
  std::string folder;
  std::string licence;
  SECTION("a wheel") {
    folder = scene.library("site-packages/nvidia/nccl/lib");
    licence = scene.text("site-packages/nvidia_nccl_cu12-2.21.5.dist-info/License.txt");
  }
  SECTION("a newer wheel") {
    folder = scene.library("site-packages/nvidia/nccl/lib");
    licence = scene.text("site-packages/nvidia_nccl_cu13-2.28.9.dist-info/licenses/License.txt");
  }
  SECTION("wheels in one prefix") {
    folder = scene.library("cuda-13.0/lib");
    licence =
        scene.text("cuda-13.0/dist-info/nvidia_nccl_cu13-2.28.9.dist-info/licenses/License.txt");
  }
  SECTION("an archive") {
    folder = scene.library("nccl_2.28.9/lib");
    licence = scene.text("nccl_2.28.9/LICENSE.txt");
  }
  const auto found = find_nccl({folder});
  REQUIRE(found);
  CHECK(found->path == folder + "/" + kNcclSoname);
  CHECK(found->licence == licence);
  CHECK(found->size_bytes == fs::file_size(found->path));

  KnownHashes hashes("");
  const auto part = collect_nccl(*found, hashes);
  REQUIRE(part);
  REQUIRE(part->files.size() == 2);
  CHECK(part->files[0].file.path == "nccl/lib/libnccl.so.2");
  CHECK(part->files[1].file.path ==
        "nccl/share/licenses/nccl/" + licence.substr(licence.rfind('/') + 1));
  CHECK(part->paths == std::vector<std::pair<std::string, std::string>>{
                           {"HORA_NCCL_LIBRARY", "@bundle@/nccl/lib/libnccl.so.2"}});
  CHECK(part->hash.size() == 64);
}

TEST_CASE("NCCL: without a licence it is not passed on") {
  const Scene scene;
  const std::string folder = scene.library("lib");
  CHECK(find_nccl({folder}).error().message ==
        "no text of a licence was found for " + folder +
            "/libnccl.so.2, without which it may not be passed on");
}

}  // namespace
}  // namespace hora::launcher
