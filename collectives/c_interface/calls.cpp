// SPDX-License-Identifier: Apache-2.0
#include "collectives/c_interface/calls.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <thread>

namespace hora::collectives {

namespace {

// Every call takes this shared; init and shutdown take it exclusively, for the exchange of one
// pointer only.
std::shared_mutex current_mutex;
std::shared_ptr<Communicator> current_communicator;
// The same for visits. A visitor marks that it is inside, then reads this; a replacing thread
// writes this, then checks for visitors. In sequentially consistent order at least one sees the
// other.
std::atomic<Communicator*> visited{nullptr};

// Where each thread that has ever made a visit says whether it is inside.
class Visitors {
 public:
  std::atomic<bool>& add() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return inside_.emplace_back(false);
  }
  void remove(const std::atomic<bool>& gone) {
    const std::lock_guard<std::mutex> lock(mutex_);
    inside_.remove_if([&](const std::atomic<bool>& each) { return &each == &gone; });
  }
  // Across fork(), after which only one thread is left.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  void unlock_in_child() { new (&mutex_) std::mutex; }

  // Visits last about a microsecond.
  void wait_until_none_is_inside() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const std::atomic<bool>& each : inside_) {
      while (each.load(std::memory_order_seq_cst)) std::this_thread::yield();
    }
  }

 private:
  std::mutex mutex_;
  std::list<std::atomic<bool>> inside_;
};

Visitors& visitors() {
  static auto* const all = new Visitors;  // never destroyed: threads may end after statics
  return *all;
}

thread_local std::atomic<bool>* place_of_this_thread = nullptr;

struct Leaving {
  ~Leaving() {
    if (place_of_this_thread == nullptr) return;
    visitors().remove(*std::exchange(place_of_this_thread, nullptr));
  }
};

std::atomic<bool>& own_place() {
  if (place_of_this_thread == nullptr) {
    place_of_this_thread = &visitors().add();
    static thread_local Leaving leaving;
    static_cast<void>(leaving);
  }
  return *place_of_this_thread;
}

}  // namespace

Visit::Visit() : inside_(own_place()) {
  inside_.store(true, std::memory_order_seq_cst);
  world_ = visited.load(std::memory_order_seq_cst);
}

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
  visited.store(next.get(), std::memory_order_seq_cst);
  visitors().wait_until_none_is_inside();
  return std::exchange(current_communicator, std::move(next));
}

void lock_current() noexcept {
  current_mutex.lock();
  visitors().lock();
}
void unlock_current() noexcept {
  visitors().unlock();
  current_mutex.unlock();
}
void unlock_current_in_child() noexcept {
  visitors().unlock_in_child();
  // The thread that holds it does not exist in the child.
  new (&current_mutex) std::shared_mutex;
  if (current_communicator == nullptr) return;
  forked_from_a_rank = true;
  visited = nullptr;
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
