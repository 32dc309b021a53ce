// SPDX-License-Identifier: Apache-2.0
// Asks the threads of ranks for their native stacks, and finds the functions of their addresses in
// ELF files.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "launcher/agent/flight_records.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// Which function of an ELF file an address belongs to.
// Reads only what it needs of the file, in pieces: a library may have hundreds of megabytes, and
// any bytes are safe to give. Takes as long as the file system does; any thread may call.

// `offsets`: places in the file, as /proc/PID/maps counts them. Answers the names as the linker has
// them; places without a name are left out.
std::map<std::uint64_t, std::string> find_elf_symbols(const std::string& path,
                                                      const std::vector<std::uint64_t>& offsets);

// "hora::collectives::Driver::run" for "_ZN4hora11collectives6Driver3runEv": without arguments.
std::string readable_symbol(const std::string& symbol);

// Asks the threads of ranks for their native stacks and puts names to what they wrote.
// The names come from /proc and from the programs' files, which may lie on a file system that does
// not answer, perhaps the very reason of the hang: a child process looks, and is given up in time.

class NativeStacks {
 public:
  explicit NativeStacks(os::EventLoop& loop) : loop_(loop) {}
  ~NativeStacks() { stop(); }
  NativeStacks(const NativeStacks&) = delete;
  NativeStacks& operator=(const NativeStacks&) = delete;

  // Signals every thread of the process that can answer.
  void ask(FlightRecords& records, pid_t pid);
  bool all_answered(const FlightRecords& records) const;
  // Calls `done` once with the merged stacks of each process, by its pid, or without those that
  // could not be had until the deadline. `python`: what these processes said themselves, by pid.
  void name(const FlightRecords& records, const std::map<pid_t, std::string>& python,
            Clock::time_point deadline, std::function<void(std::map<pid_t, std::string>)> done);

 private:
  struct PendingRequest {
    std::uint64_t request = 0;
    std::size_t threads = 0;
  };

  void on_readable();
  void finish();
  void stop();

  os::EventLoop& loop_;
  std::map<pid_t, PendingRequest> asked_;
  std::map<pid_t, std::string> texts_;
  std::string answer_;
  pid_t child_ = -1;
  os::Fd pipe_;
  os::EventLoop::TimerId timer_ = 0;
  std::function<void(std::map<pid_t, std::string>)> done_;
};

}  // namespace hora::launcher
