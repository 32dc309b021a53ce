// Where the processes of a job leave values for each other.
//
// A key is a path: "place/name", or just "name". All keys with the same place can be read together.
// Values are any bytes, of which the last one written counts. Every call has a deadline; when it
// passes, the error is kTimedOut and says what was waited for.
// An implementation may be used by one thread at a time, unless it says otherwise.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/kv_batch.h"

namespace hora::rendezvous {

class Store {
 public:
  virtual ~Store() = default;

  virtual Status set(std::string_view key, std::string_view value, Deadline deadline) = 0;
  // Several keys of one place (names without it), all or none of them.
  virtual Status set_all(std::string_view place, const KvEntries& entries, Deadline deadline) = 0;

  // The value, or nothing when there is none; does not wait for one.
  virtual Result<std::optional<std::string>> get(std::string_view key, Deadline deadline) = 0;
  // The value, as soon as there is one.
  virtual Result<std::string> wait(std::string_view key, Deadline deadline) = 0;
  // All of a place, by name, as soon as it holds at least `count` keys; 0 does not wait.
  virtual Result<KvEntries> gather(std::string_view place, std::size_t count,
                                   Deadline deadline) = 0;

  // A key that is not there is no error. In a scope whose size the server was told, it means
  // "I am done with the scope" instead: the values go when all have said so.
  virtual Status remove(std::string_view key, Deadline deadline) = 0;
};

}  // namespace hora::rendezvous
