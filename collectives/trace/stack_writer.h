// SPDX-License-Identifier: Apache-2.0
// Lets the agent ask every thread of this process for its native stack, without rights over other
// processes: the agent sends a signal to each thread, whose handler writes its own stack into the
// file of the flight recorder (rendezvous/contract/stack_record.h).
//
// The handler neither allocates nor locks. It stays for the life of the process, as this library
// does.
#pragma once

#include <string>

namespace hora::collectives {

// `path`, `page`: as for FlightRecorder::open. Where the file has no room for stacks, or the signal
// is taken by the program, nothing is offered. Of one process the first call counts.
void offer_stacks(const std::string& path, int page);

}  // namespace hora::collectives
