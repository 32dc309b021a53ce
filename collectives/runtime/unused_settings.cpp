// SPDX-License-Identifier: Apache-2.0
// docs/reference/environment.md has a row for each of these, and for each that has an effect.
#include "collectives/runtime/unused_settings.h"

#include <charconv>

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

std::string describe_unused_settings(const Variables& variables, std::string_view instruction_set) {
  std::string line;
  const auto add = [&line](std::string_view name, const std::string& value,
                           std::string_view reason) {
    line += line.empty() ? "not used here: " : "; ";
    line.append(name).append("=").append(value).append(" (").append(reason).append(")");
  };
  // The kernels pass over what they cannot run, so that one value does for hosts of several kinds.
  const std::string simd = variables("HORA_SIMD").value_or("");
  if (!simd.empty() && simd != instruction_set) {
    add("HORA_SIMD", simd,
        "no instruction set of this processor; it uses " + std::string(instruction_set));
  }
  for (const UnusedSetting& each : kUnused) {
    const auto found = variables(each.name);
    if (!found || found->empty() || !asks_for_something(each.asks, *found)) continue;
    add(each.name, *found, each.reason);
  }
  return line;
}

}  // namespace hora::collectives
