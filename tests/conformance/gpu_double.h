// SPDX-License-Identifier: Apache-2.0
// What tests ask of the double of a GPU (tests/support/gpu_double), which they find at run time.
#pragma once

#include <dlfcn.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include "processes.h"
#include "tests/support/catch.h"

namespace hora::test {

inline constexpr std::chrono::seconds kTimeout{60};

template <typename Function>
Function find(const char* library, const char* name) {
  void* const handle = dlopen(library, RTLD_NOW);
  void* const function = handle == nullptr ? nullptr : dlsym(handle, name);
  if (function == nullptr) throw std::runtime_error(std::string(name) + ": " + dlerror());
  return reinterpret_cast<Function>(function);
}

// How many operations this process has given to NCCL.
inline int started() {
  static const auto count = find<int (*)()>("libnccl.so.2", "hora_double_started");
  return count();
}

inline void wait_until_started(int count) {
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  while (started() < count) {
    check(std::chrono::steady_clock::now() < deadline,
          "operation " + std::to_string(count) +
              " did not begin while the one before it was under way");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

inline void expect_all_well(const WorldOptions& options, const RankBody& body) {
  const auto results = run_processes(options, body);
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    INFO("rank " << rank << ": " << results[rank].text);
    CHECK(results[rank].exited);
    CHECK(results[rank].code == 0);
  }
}

}  // namespace hora::test
