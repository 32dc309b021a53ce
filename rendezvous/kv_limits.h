// SPDX-License-Identifier: Apache-2.0
// How much a key-value service holds.  [pure]
#pragma once

#include <chrono>
#include <cstddef>

namespace hora::rendezvous {

struct KvLimits {
  std::size_t value_bytes = 64u << 20;   // one value; a batch's whole body
  std::size_t total_bytes = 512u << 20;  // all keys and values, those being received included
  std::size_t keys = 1u << 20;
  std::size_t parked_waits = 1u << 16;
  std::size_t path_bytes = 2048;                    // of "/scope/key"
  std::chrono::milliseconds longest_wait{300'000};  // longer ones are cut to this
};

}  // namespace hora::rendezvous
