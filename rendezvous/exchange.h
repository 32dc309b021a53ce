// What processes do when they meet in a store: each brings a value and takes home everybody's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/store.h"

namespace hora::rendezvous {

// Every one of `size` processes calls this with its own `rank` and the same `place`, a name that is
// used once. Result: the values by rank. Two requests to a store server per process, however many
// they are. When the deadline passes, the error names the ranks that did not come.
Result<std::vector<std::string>> exchange(Store& store, std::string_view place, int rank, int size,
                                          std::string_view value, Deadline deadline);

// exchange() of nothing: nobody returns before all have come.
Status barrier(Store& store, std::string_view place, int rank, int size, Deadline deadline);

}  // namespace hora::rendezvous
