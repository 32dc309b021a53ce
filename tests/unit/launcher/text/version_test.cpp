// SPDX-License-Identifier: Apache-2.0
#include "launcher/text/version.h"

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

TEST_CASE("Versions are compared by their numbers") {
  CHECK(compare_versions("2.10", "2.9") > 0);
  CHECK(compare_versions("2.4.0+cu121", "2.4") == 0);
  CHECK(compare_versions("525.60.13", "525.60.13") == 0);
  CHECK(compare_versions("470.57", "525") < 0);
}

}  // namespace
}  // namespace hora::launcher
