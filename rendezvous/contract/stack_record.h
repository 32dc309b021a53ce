// SPDX-License-Identifier: Apache-2.0
// Where the threads of a rank write their native stacks at the agent's request: in the flight
// recorder's file, after its pages.  [pure]
//
// The agent and the rank map the same file; the atomics are their only synchronisation.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hora::rendezvous {

inline constexpr std::size_t kStackFrames = 60;
inline constexpr std::size_t kStackThreads = 127;
inline constexpr std::uint64_t kStackMagic = 0x314b5453415248;  // "HRASTK1"

// One thread's answer. It is complete when `request` equals that of the area.
struct StackSlot {
  std::uint64_t request = 0;
  std::uint32_t tid = 0;
  std::uint32_t frames = 0;
  std::uint64_t thread_id = 0;               // pthread_self(), which Python shows as well
  std::uint64_t pcs[kStackFrames + 1] = {};  // the innermost first
};
static_assert(sizeof(StackSlot) == 512);

// Zeroed memory is an area that no process offers yet.
struct StackArea {
  std::uint64_t magic = 0;                // kStackMagic, written by the agent
  std::atomic<std::int64_t> pid{0};       // of the process whose threads answer the signal
  std::atomic<std::uint64_t> request{0};  // the agent counts up, then sends the signals
  std::atomic<std::uint64_t> taken{0};    // slots that threads have taken for this request
  char reserved[480] = {};
  StackSlot slots[kStackThreads];
};
inline constexpr std::size_t kStackAreaBytes = 64 * 1024;
static_assert(sizeof(StackArea) == kStackAreaBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace hora::rendezvous
