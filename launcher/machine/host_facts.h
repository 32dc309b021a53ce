// SPDX-License-Identifier: Apache-2.0
// Facts about this machine for Hello, among them the C library of its programs. Each call reads
// them again; any thread may call.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/protocol/messages.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// Which C library the programs of this host load. The agent has its own inside, so it looks at
// files.

// "glibc 2.31"; "musl" on a host that has only that; "none" where no dynamic program can start;
// empty when the agent cannot detect it. `root` is prepended to every path: "" except in tests.
std::string c_library(const std::string& root = "");

// Facts about this machine for Hello. Each call reads small files of this machine again; any thread
// may call.

// The boot id and the network namespace: equal for two names of one machine, different for two
// machines and for containers with networks of their own. Empty: /proc does not say.
std::string machine_id();
std::int64_t pid_namespace();  // the number of its inode; 0: unknown
std::string user_name();
std::string home_directory();
int usable_cpus();  // that this process may run on
int count_gpus();

// Whether this process and the kernel's log give processes the same numbers.
bool in_first_pid_namespace();
std::vector<InterfaceInfo> host_interfaces();
std::int64_t wall_clock_ns();  // CLOCK_REALTIME

// A Hello with all of that but the time.
Hello describe_machine();

// A TCP port that the kernel gives to no other program while `holder` lives; a program that sets
// SO_REUSEADDR, as servers do, can still listen on it. Port 0: none is available.
struct ReservedPort {
  int port = 0;
  os::Fd holder;
};
ReservedPort reserve_port();

}  // namespace hora::launcher
