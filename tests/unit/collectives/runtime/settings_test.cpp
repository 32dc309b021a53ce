// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/settings.h"

#include <map>
#include <string>

#include "tests/support/catch.h"

namespace hora::collectives {
namespace {

std::string reports_of(const std::map<std::string, std::string, std::less<>>& variables) {
  return describe_unused_settings(
      [&](std::string_view name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        if (found == variables.end()) return std::nullopt;
        return found->second;
      },
      "avx2");
}

TEST_CASE("settings without effect are reported in one line, with the reason") {
  CHECK(reports_of({{"HOROVOD_TORUS_ALLREDUCE", "1"}, {"HOROVOD_CCL_CACHE", "1"}}) ==
        "not used here: HOROVOD_CCL_CACHE=1 (oneCCL's operations are not cached); "
        "HOROVOD_TORUS_ALLREDUCE=1 (the hierarchical allreduce takes its place)");
}

TEST_CASE(
    "an instruction set that the kernels do not use is reported, with the one that they use") {
  CHECK(reports_of({{"HORA_SIMD", "AVX"}}) ==
        "not used here: HORA_SIMD=AVX (no instruction set of this processor; it uses avx2)");
  CHECK(reports_of({{"HORA_SIMD", "avx2"}}).empty());
}

TEST_CASE("a value that asks for nothing is not reported") {
  CHECK(reports_of({}).empty());
  CHECK(reports_of({{"HOROVOD_TORUS_ALLREDUCE", "0"},
                    {"HOROVOD_CCL_CACHE", ""},
                    {"HOROVOD_ENABLE_XLA_OPS", "no"},
                    {"HOROVOD_BATCH_D2D_MEMCOPIES", "1"},
                    {"HOROVOD_FUSION_THRESHOLD", "1024"}})
            .empty());
  CHECK(
      reports_of({{"HOROVOD_BATCH_D2D_MEMCOPIES", "0"}}) ==
      "not used here: HOROVOD_BATCH_D2D_MEMCOPIES=0 (the runtime chooses how it copies on a GPU)");
  // Any size asks for pieces of that size.
  CHECK_FALSE(reports_of({{"HOROVOD_ADASUM_MPI_CHUNK_SIZE", "65536"}}).empty());
}

}  // namespace
}  // namespace hora::collectives
