// SPDX-License-Identifier: Apache-2.0
// The runtime takes its settings from variables, so a misspelt one changes nothing and says
// nothing. The list is that of docs/reference/runtime.md; a test compares the two.
#include "launcher/options/runtime_variables.h"

#include <algorithm>

#include "launcher/text/did_you_mean.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kPrefix = "HORA_";

// Without those that horarun sets itself.
constexpr std::string_view kVariables[] = {
    "HORA_BACKENDS",
    "HORA_DETERMINISTIC",
    "HORA_GPU_TENSORS",
    "HORA_MODULE_PATH",
    "HORA_MPI",
    "HORA_NCCL",
    "HORA_NCCL_LIBRARY",
    "HORA_SHM_BYTES",
    "HORA_SHM_PART_BYTES",
    "HORA_SHM_SMALL_BYTES",
    "HORA_SIMD",
    "HORA_STAR_RANKS",
    "HORA_SYSTEM_CONFIG",
    "HORA_TIMELINE_LIMIT_MB",
};

}  // namespace

std::span<const std::string_view> runtime_variables() { return kVariables; }

// A name that is close to none may be anybody's: tests and jobs around this one have some, too.
std::vector<std::string> misspelt_runtime_variables(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  std::vector<std::string> known;
  for (const std::string& name : names) {
    if (!name.starts_with(kPrefix) ||
        std::find(std::begin(kVariables), std::end(kVariables), name) != std::end(kVariables)) {
      continue;
    }
    if (known.empty()) {
      // The edit distance counts in what is not common to all.
      for (const std::string_view each : kVariables)
        known.emplace_back(each.substr(kPrefix.size()));
    }
    const auto close = did_you_mean(name.substr(kPrefix.size()), known);
    if (close.empty()) continue;
    out.push_back(name + " is set, and nothing reads it; did you mean " + std::string(kPrefix) +
                  close.front() + "?");
  }
  return out;
}

}  // namespace hora::launcher
