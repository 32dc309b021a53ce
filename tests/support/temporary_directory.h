// SPDX-License-Identifier: Apache-2.0
// A directory of a test's own, removed with all that is in it at the end.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "tests/support/catch.h"

namespace hora::test {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name =
        std::filesystem::canonical(std::filesystem::temp_directory_path()) / "hora-test-XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  // Without symbolic links.
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

}  // namespace hora::test
