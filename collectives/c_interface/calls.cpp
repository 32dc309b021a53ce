// SPDX-License-Identifier: Apache-2.0
#include "collectives/c_interface/calls.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>
#include <shared_mutex>

namespace hora::collectives {

namespace {

// Every call takes this shared; init and shutdown take it exclusively, for the exchange of one
// pointer only.
std::shared_mutex current_mutex;
std::shared_ptr<Communicator> current_communicator;

}  // namespace

std::atomic<bool> forked_from_a_rank{false};

std::shared_ptr<Communicator>& of_the_parent() {
  static auto* const parent = new std::shared_ptr<Communicator>;  // never destroyed
  return *parent;
}

std::shared_ptr<Communicator> current() {
  const std::shared_lock<std::shared_mutex> lock(current_mutex);
  return current_communicator;
}

std::shared_ptr<Communicator> replace_current(std::shared_ptr<Communicator> next) {
  const std::unique_lock<std::shared_mutex> lock(current_mutex);
  return std::exchange(current_communicator, std::move(next));
}

void lock_current() noexcept { current_mutex.lock(); }
void unlock_current() noexcept { current_mutex.unlock(); }
void unlock_current_in_child() noexcept {
  // The thread that holds it does not exist in the child.
  new (&current_mutex) std::shared_mutex;
  if (current_communicator == nullptr) return;
  forked_from_a_rank = true;
  // Moved, not destroyed: destroying it would join threads that do not exist in the child and send
  // messages on the parent's connections.
  std::swap(of_the_parent(), current_communicator);
}

std::string& last_error() noexcept {
  thread_local std::string text;
  return text;
}

hora_status fail(hora_status status, std::string text) {
  last_error() = std::move(text);
  return status;
}

hora_status not_initialized() {
  if (forked_from_a_rank) {
    return fail(HORA_NOT_INITIALIZED,
                "this process was forked from a rank of the job; collectives work in the rank "
                "itself, not in a child that it forks");
  }
  // In words that fit every interface: Python shows the text as it is.
  return fail(HORA_NOT_INITIALIZED, "init has not been called, or shutdown has");
}

Deadline deadline_after(std::int64_t timeout_ms) {
  if (timeout_ms < 0) return Deadline::max();  // and no look at the clock
  const auto now = Clock::now();
  const auto most = std::chrono::floor<std::chrono::milliseconds>(Deadline::max() - now);
  return timeout_ms >= most.count() ? Deadline::max() : now + std::chrono::milliseconds(timeout_ms);
}

std::vector<hora_request> copies_of(const hora_request* requests, std::int32_t count) {
  const std::uint32_t stride = requests->struct_size;
  std::vector<hora_request> copies(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < copies.size(); ++i) {
    std::memcpy(&copies[i], reinterpret_cast<const char*>(requests) + i * stride,
                std::min<std::size_t>(stride, sizeof(hora_request)));
    copies[i].struct_size = std::min<std::uint32_t>(stride, sizeof(hora_request));
  }
  return copies;
}

}  // namespace hora::collectives
