// MPI in this process: started once, by us or by the program, and ended at exit if it was us.
#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>

#include "collectives/backends/backend.h"

namespace hora::collectives::mpi {

// Answers false and says which call failed, and how, unless code is MPI_SUCCESS.
bool check(int code, const char* call, ErrorText& error);

// Whether an MPI launcher started this process, or the program has initialised MPI itself. `seen`
// names what tells so, or what was looked for.
bool is_launched(ErrorText& seen);
// How many processes the launcher's variables speak of; 0: they do not say.
int launched_size();

using Deadline = std::chrono::steady_clock::time_point;

// MPI initialised, with the thread support that the runtime needs. Any number of calls.
bool initialise(ErrorText& error);
// And a communicator of all processes that no one else uses: world(). Where they have no world yet
// all processes are to come here, until the deadline.
bool start(Deadline deadline, ErrorText& error);
MPI_Comm world();
// "Open MPI v4.1.4"; version() tells the thread support as well, after start().
const char* library_name();
const char* version();

// Until the request is done, `aborted` is set, or the deadline has passed. A request that is given
// up stays with MPI, which may still use its memory when it is called again: MPI is then not used
// any more by us (start() fails, and nothing is finalised).
bool wait(MPI_Request& request, const std::atomic<bool>& aborted, Deadline deadline,
          const char* what, ErrorText& error);
bool is_given_up();

// Whether ranks work together over MPI, or did until their world was broken off: then some may be
// gone, and MPI is not finalised at the end, which would wait for them.
void set_broken_off(bool broken);

// Between the ranks of a host and this one's cores: whether waiting may keep a core busy.
void set_ranks_on_host(int count);

}  // namespace hora::collectives::mpi
