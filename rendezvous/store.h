// SPDX-License-Identifier: Apache-2.0
// Where the processes of a job leave values for each other.  [interface]
//
// A key is a path: "place/name", or just "name". One call can read all keys with the same place. A
// value is any bytes; the last write wins. Every call has a deadline; when it passes, the error is
// kTimedOut and says what the call waited for. An implementation serves one thread at a time unless
// it says otherwise.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/kv_target.h"

namespace hora::rendezvous {

class Store {
 public:
  virtual ~Store() = default;

  virtual Status set(std::string_view key, std::string_view value, Deadline deadline) = 0;
  // Sets several keys of one place (names without the place), all of them or none.
  virtual Status set_all(std::string_view place, const KvEntries& entries, Deadline deadline) = 0;

  // Returns the value, or nothing when there is none; does not wait.
  virtual Result<std::optional<std::string>> get(std::string_view key, Deadline deadline) = 0;
  // Waits for a value and returns it.
  virtual Result<std::string> wait(std::string_view key, Deadline deadline) = 0;
  // Waits until the place holds at least `count` keys and returns all of them, by name; 0 does not
  // wait.
  virtual Result<KvEntries> gather(std::string_view place, std::size_t count,
                                   Deadline deadline) = 0;

  // Removes a key; a missing one is not an error. In a scope whose size the server knows, it means
  // "I am done with the scope" instead: the values are removed when all have done so.
  virtual Status remove(std::string_view key, Deadline deadline) = 0;
};

}  // namespace hora::rendezvous
