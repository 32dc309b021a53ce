// SPDX-License-Identifier: Apache-2.0
// Where the sockets of running launchers are: a folder that only their user may enter, with one
// socket for each launcher, named by its process. Any thread.
#pragma once

#include <sys/un.h>

#include <string>
#include <vector>

#include "rendezvous/os/fd.h"

namespace hora::launcher {

// In order of preference: $XDG_RUNTIME_DIR/hora where that variable names a folder, /tmp/hora-UID.
std::vector<std::string> control_folders(const std::string& runtime_directory);

// An address of a socket in that folder, such as "/proc/self/fd/7/1234": short, whatever the
// folder's name is, and the folder cannot be exchanged meanwhile.
sockaddr_un control_address(const os::Fd& folder, const std::string& name);

// A process number as the name of a socket; 0: the file is none of ours.
int job_of_name(const std::string& name);

}  // namespace hora::launcher
