// SPDX-License-Identifier: Apache-2.0
#include "launcher/build/licence_files.h"

#include <unistd.h>

#include <algorithm>

#include "tests/support/catch.h"

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
