// SPDX-License-Identifier: Apache-2.0
#include "launcher/failures/host_failure.h"

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

TEST_CASE("A host fits when its glibc is new enough, or when nothing is known") {
  for (const char* const host : {"glibc 2.28", "glibc 2.36", "glibc 2.100", ""}) {
    INFO(host);
    CHECK_FALSE(why_runtime_does_not_fit(host, "2.28"));
    CHECK_FALSE(why_runtime_does_not_fit(host, ""));
  }
}

TEST_CASE(
    "The message for a host that does not fit says in one sentence what it has and what is "
    "needed") {
  const auto message = [](const char* host) {
    const auto why = why_runtime_does_not_fit(host, "2.28");
    REQUIRE(why);
    CHECK(why->code == "E_C_LIBRARY");
    CHECK_FALSE(why->advice.empty());
    return why->message;
  };
  CHECK(message("glibc 2.9") ==
        "the host has glibc 2.9, and the runtime needs glibc 2.28 or newer");
  CHECK(message("musl") ==
        "the host has musl and no glibc, and the runtime needs glibc 2.28 or newer");
  CHECK(message("none") == "the host has no glibc, and the runtime needs glibc 2.28 or newer");
}

}  // namespace
}  // namespace hora::launcher
