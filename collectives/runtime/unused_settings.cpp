// SPDX-License-Identifier: Apache-2.0
// docs/reference/environment.md has a row for each of these, and for each that has an effect.
#include "collectives/runtime/unused_settings.h"

#include <charconv>
#include <string_view>

namespace hora::collectives {

namespace {

// Scripts set variables to their defaults, too; only another value is worth a warning.
enum class Asks { kWhenOn, kWhenOff, kWhenSet };

struct UnusedSetting {
  std::string_view name;
  Asks asks;
  std::string_view reason;
};

// In the order of the alphabet, which is that of the line.
constexpr UnusedSetting kUnused[] = {
    {"HOROVOD_ADASUM_MPI_CHUNK_SIZE", Asks::kWhenSet, "Adasum has no chunks of that kind"},
    {"HOROVOD_BATCH_D2D_MEMCOPIES", Asks::kWhenOff, "the runtime chooses how it copies on a GPU"},
    {"HOROVOD_CCL_CACHE", Asks::kWhenOn, "there is no oneCCL"},
    {"HOROVOD_ENABLE_ASYNC_COMPLETION", Asks::kWhenOn,
     "an operation is done when the GPU has finished it"},
    {"HOROVOD_ENABLE_XLA_OPS", Asks::kWhenOn,
     "functions that XLA compiles cannot call collectives"},
    {"HOROVOD_TORUS_ALLREDUCE", Asks::kWhenOn, "the hierarchical allreduce takes its place"},
};

// Like Horovod, which reads the number at the beginning and takes anything else for 0.
bool is_on(const std::string& text) {
  long long value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value > 0;
}

bool asks_for_something(Asks asks, const std::string& text) {
  switch (asks) {
    case Asks::kWhenOn:
      return is_on(text);
    case Asks::kWhenOff:
      return !is_on(text);
    case Asks::kWhenSet:
      return true;
  }
  return true;
}

}  // namespace

std::string describe_unused_settings(const Variables& variables) {
  std::string line;
  for (const UnusedSetting& each : kUnused) {
    const auto found = variables(each.name);
    if (!found || found->empty() || !asks_for_something(each.asks, *found)) continue;
    line += line.empty() ? "not used here: " : "; ";
    line.append(each.name).append("=").append(*found).append(" (").append(each.reason).append(")");
  }
  return line;
}

}  // namespace hora::collectives
