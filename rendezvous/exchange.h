// SPDX-License-Identifier: Apache-2.0
// How processes meet in a store: each brings a value and gets those of all. Both calls block, until
// the deadline at most, on a thread that the store serves.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/store.h"

namespace hora::rendezvous {

// Each of `size` processes calls this with its own `rank` and the same `place`, a name that is used
// only once. Returns the values by rank. It costs two requests per process, however many processes
// there are. When the deadline passes, the error names the ranks that did not come.
Result<std::vector<std::string>> exchange(Store& store, std::string_view place, int rank, int size,
                                          std::string_view value, Deadline deadline);

// exchange() of nothing: no process returns before all have come.
Status barrier(Store& store, std::string_view place, int rank, int size, Deadline deadline);

}  // namespace hora::rendezvous
