// SPDX-License-Identifier: Apache-2.0
// The stacks of one process as text: what Python said of its threads and what the threads wrote
// themselves, merged.  [pure]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hora::launcher {

struct NativeFrame {
  std::string function;      // empty: not known
  std::string module;        // "libc.so.6"
  std::uint64_t offset = 0;  // in the module's file
};
struct NativeThread {
  std::uint64_t thread_id = 0;  // as Python prints it
  std::string name;
  std::vector<NativeFrame> frames;  // the innermost first
};

// A thread's native frames, then its Python ones: the interpreter's own, between these, are left
// out, and so are those that start a thread. Threads with equal stacks are printed once. Frames of
// native code begin with " at ", those of Python are as faulthandler prints them.
std::string merge_stacks(const std::string& python, const std::vector<NativeThread>& threads);

}  // namespace hora::launcher
