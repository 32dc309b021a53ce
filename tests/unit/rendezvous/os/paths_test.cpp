// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/os/paths.h"

#include <unistd.h>

#include <filesystem>

#include "tests/support/catch.h"

namespace hora::os {
namespace {

TEST_CASE("the folder of a path") {
  CHECK(folder_of("/usr/lib/libc.so") == "/usr/lib");
  CHECK(folder_of("/vmlinuz").empty());
  CHECK(folder_of("name") == "name");
}

TEST_CASE("links are followed, and what leads to nothing stays as it is") {
  const std::string folder =
      std::filesystem::temp_directory_path() / ("paths-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder + "/real");
  std::filesystem::create_directory_symlink(folder + "/real", folder + "/link");
  std::filesystem::create_symlink(folder + "/gone", folder + "/loose");
  CHECK(real_path(folder + "/link/../link") == real_path(folder) + "/real");
  CHECK(real_path(folder + "/loose") == folder + "/loose");
  CHECK(is_folder(folder + "/link"));
  CHECK_FALSE(is_folder(folder + "/loose"));
  CHECK_FALSE(is_folder("/proc/self/stat"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace hora::os
