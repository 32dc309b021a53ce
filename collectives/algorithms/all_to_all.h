// SPDX-License-Identifier: Apache-2.0
// Every rank has something else for every other one.
#pragma once

#include "collectives/algorithms/messages.h"

namespace hora::collectives {

// By set index, one after the other in both stretches of memory.
bool all_to_all(Messages& messages, const char* input, const std::int64_t* send_bytes, char* output,
                const std::int64_t* receive_bytes, ErrorText& error);

}  // namespace hora::collectives
