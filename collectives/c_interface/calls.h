// SPDX-License-Identifier: Apache-2.0
// What all calls of hora.h share: the world of this process, the last error, and that no exception
// leaves a call.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/runtime/communicator.h"
#include "hora/hora.h"
#include "rendezvous/base/time.h"

namespace hora::collectives {

// True in a process that was forked from a rank. The runtime's threads do not exist here, and its
// connections and shared memory belong to the parent, so nothing touches them, not even at exit.
// The child may query its parent's rank, as workers of data loaders do.
extern std::atomic<bool> forked_from_a_rank;
std::shared_ptr<Communicator>& of_the_parent();

// The caller's reference keeps the communicator alive if another thread shuts down. Null: this
// process is in no world.
std::shared_ptr<Communicator> current();
// As current(), for calls that never wait: the reference is not counted. The thread that takes the
// world away waits until no call is in it, so leave it soon.
class Visit {
 public:
  Visit();
  ~Visit() { inside_.store(false, std::memory_order_release); }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  // Null: this process is in no world.
  Communicator* world() const { return world_; }

 private:
  std::atomic<bool>& inside_;  // the thread's own
  Communicator* world_;
};
std::shared_ptr<Communicator> replace_current(std::shared_ptr<Communicator> next);
// Held across fork(), so that the child copies the pointer in a consistent state.
void lock_current() noexcept;
void unlock_current() noexcept;
void unlock_current_in_child() noexcept;

// Per thread, like errno: what hora_last_error() returns stays valid until the same thread calls
// again.
std::string& last_error() noexcept;

hora_status fail(hora_status status, std::string text);
hora_status not_initialized();
// Copies `text` only on failure.
inline hora_status report(hora_status status, const std::string& text) {
  return status == HORA_OK ? HORA_OK : fail(status, text);
}
inline hora_status report(const Outcome& outcome) { return report(outcome.status, outcome.text); }

// A deadline beyond the range of the clock means none, and so does a negative timeout.
Deadline deadline_after(std::int64_t timeout_ms);

// Callers of another version may have a smaller or larger hora_request: it grows at its end, and
// struct_size says how much the caller knows. Missing fields are zero, which is their default.
std::vector<hora_request> copies_of(const hora_request* requests, std::int32_t count);

// An exception says what failed, but not in which call.
template <typename Function>
hora_status guarded(const char* call, Function&& function) {
  try {
    last_error().clear();
    return function();
  } catch (const std::exception& failure) {
    return fail(HORA_INTERNAL, std::string(call) + ": " + failure.what());
  }
}

template <typename Function>
int ask(Function&& function) {
  const auto communicator = current();
  return communicator == nullptr ? -1 : function(*communicator);
}

}  // namespace hora::collectives
