// SPDX-License-Identifier: Apache-2.0
// Merges what Python and the native unwinder say about the same threads. The thread id that Python
// prints is the pthread handle, which the native handler records as well.
#include "launcher/agent/stack_text.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

struct PythonThread {
  std::uint64_t thread_id = 0;
  std::string head;
  std::string frames;
};

// Splits "Current thread 0x00007f3c (most recent call first):" and the lines below it.
std::vector<PythonThread> read_python(const std::string& text) {
  std::vector<PythonThread> threads;
  for (const std::string_view line : split(text, '\n')) {
    if (trim(line).empty()) continue;
    // Matches "Thread" and "thread".
    const std::size_t id = line.find("hread 0x");
    if (id != std::string_view::npos && line[0] != ' ') {
      threads.push_back({std::strtoull(std::string(line.substr(id + 6)).c_str(), nullptr, 16),
                         std::string(line),
                         {}});
    } else if (!threads.empty()) {
      threads.back().frames += std::string(line) + "\n";
    }
  }
  return threads;
}

bool begins_with(const std::string& text, std::string_view start) {
  return text.compare(0, start.size(), start) == 0;
}

bool is_interpreter(const NativeFrame& frame) {
  return begins_with(frame.module, "python") || begins_with(frame.module, "libpython");
}

// These frames begin every thread and say nothing about what it does.
bool starts_threads(const NativeFrame& frame) {
  return frame.function == "start_thread" || frame.function == "clone3" ||
         frame.function == "__clone3" || frame.function == "clone" || frame.function == "__clone" ||
         frame.function == "_start" || begins_with(frame.function, "__libc_start");
}

std::string frame_text(const NativeFrame& frame) {
  if (!frame.function.empty()) return "  at " + frame.function + " (" + frame.module + ")\n";
  char offset[32];
  std::snprintf(offset, sizeof offset, "+0x%llx", static_cast<unsigned long long>(frame.offset));
  return "  at " + (frame.module.empty() ? "code without a file" : frame.module + offset) + "\n";
}

// Leaves out the frames that only start a thread or lead from the interpreter to the call. They
// come last and mostly have no names, so the text ends at the last frame that has one.
std::string native_text(const NativeThread& thread, bool in_python) {
  std::size_t count = 0;
  std::size_t named = 0;
  for (const NativeFrame& frame : thread.frames) {
    if ((in_python && is_interpreter(frame)) || starts_threads(frame)) break;
    ++count;
    if (!frame.function.empty()) named = count;
  }
  std::string text;
  for (std::size_t i = 0; i < (named > 0 ? named : count); ++i)
    text += frame_text(thread.frames[i]);
  return text;
}

struct Group {
  std::string name;
  std::string frames;
  int count = 0;
};

}  // namespace

std::string merge_stacks(const std::string& python, const std::vector<NativeThread>& threads) {
  if (threads.empty()) return python;
  std::vector<PythonThread> known = read_python(python);
  std::vector<Group> groups;
  // Threads of a pool often wait at the same place: print one stack and count them.
  const auto add = [&](const std::string& name, std::string frames) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& each) {
      return each.name == name && each.frames == frames;
    });
    if (same != groups.end()) {
      ++same->count;
    } else {
      groups.push_back({name, std::move(frames), 1});
    }
  };
  for (const NativeThread& thread : threads) {
    const auto found = std::find_if(known.begin(), known.end(), [&](const PythonThread& each) {
      return each.thread_id == thread.thread_id;
    });
    if (found == known.end()) {
      add(thread.name, native_text(thread, false));
    } else {
      // The native frames are the inner ones: the Python frame has called them.
      add(thread.name, native_text(thread, true) + found->frames);
      known.erase(found);
    }
  }
  std::string text;
  for (const Group& each : groups) {
    text += each.count > 1 ? std::to_string(each.count) + " threads " : "Thread ";
    text += each.name + " (most recent call first):\n" + each.frames;
  }
  // Python threads that gave no native stack keep their own text.
  for (const PythonThread& each : known) text += each.head + "\n" + each.frames;
  return text;
}

}  // namespace hora::launcher
