// SPDX-License-Identifier: Apache-2.0
// MPI in this process: initialised once, by Hora or by the program, and finalised at exit if Hora
// initialised it. Any thread may call these functions.
#pragma once

#include <atomic>
#include <chrono>

#include "collectives/backend.h"
#include "collectives/backends/mpi/library.h"
#include "rendezvous/base/time.h"

namespace hora::collectives::mpi {

// Returns false and says which call failed, and how, unless `code` is MPI_SUCCESS.
bool check(int code, const char* call, ErrorText& error);

// Whether an MPI launcher started this process, or the program has initialised MPI itself. `seen`
// names the evidence, or what this looked for.
bool is_launched(ErrorText& seen);
// How many processes the launcher's variables announce; 0: they do not say.
int launched_size();

// Initialises MPI with the thread support that the runtime needs. The caller may call it any number
// of times.
bool initialise(ErrorText& error);
// Also makes a communicator of all processes for Hora alone: world(). While there is none, all
// processes have to call this until the deadline.
bool start(Deadline deadline, ErrorText& error);
MPI_Comm world();
// "Open MPI v4.1.4"; version() adds the thread support, after start().
const char* library_name();
const char* version();

// Waits until the request is done, `aborted` is set, or the deadline has passed. An abandoned
// request stays with MPI, which may still use its memory at its next call: Hora then never uses MPI
// again (start() fails, and nothing is finalised).
bool wait(MPI_Request& request, const std::atomic<bool>& aborted, Deadline deadline,
          const char* what, ErrorText& error);
bool is_given_up();

// Records whether the job's world over MPI was broken off. Then some ranks may be gone, and
// MPI_Finalize, which would wait for them, is left out at the end.
void set_broken_off(bool broken);

// Sets how many ranks share the host's cores, which decides whether waiting may keep a core busy.
void set_ranks_on_host(int count);

}  // namespace hora::collectives::mpi
