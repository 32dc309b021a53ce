// SPDX-License-Identifier: Apache-2.0
// A page of shared memory per rank, owned by the agent, which reads it after the rank has died or
// while it hangs. The rank only stores: no lock, no system call, no allocation, so recording is
// cheap enough to be always on.
#include "collectives/trace/flight_recorder.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "collectives/trace/observer.h"
#include "rendezvous/os/fd.h"

namespace hora::collectives {

namespace {

using rendezvous::FlightNote;
using rendezvous::FlightState;
using rendezvous::kFlightAsked;
using rendezvous::kFlightPageBytes;
using rendezvous::kFlightSteps;

static_assert(Observer::kLastTaken >= kFlightAsked);

std::int64_t nanoseconds(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

// Keeps the stores before it ahead of those after it. For a reader that looks after this process
// has died the program order is enough, but the agent also looks at a rank that lives and seems to
// hang: on another core it would see the stores of an ARM64 processor in any order. On x86-64 the
// fence costs nothing.
void in_order() { std::atomic_thread_fence(std::memory_order_release); }

// What orders the rest. One store, which the compiler neither splits nor repeats.
template <typename Value>
void store(Value& place, Value value) {
  std::atomic_ref(place).store(value, std::memory_order_relaxed);
}

template <std::size_t kSize>
void copy_text(char (&to)[kSize], std::string_view from) {
  const std::size_t length = std::min(from.size(), kSize - 1);
  std::memcpy(to, from.data(), length);
  to[length] = '\0';
}

void write_note(FlightNote& note, std::uint64_t stamp, std::int64_t began_ns, std::size_t tensors,
                const Request& first) {
  // Odd while the note is being written: a reader skips it, and a rank that was killed here leaves
  // it so.
  store(note.stamp, stamp | 1);
  in_order();
  note.began_ns = began_ns;
  note.ended_ns = 0;
  note.tensors = static_cast<std::uint32_t>(tensors);
  copy_text(note.operation, action_name(first.action));
  copy_text(note.name, first.name);
  note.process_set = first.process_set;
  in_order();
  store(note.stamp, stamp);
}

// For one that has ended when it is noted.
void write_again(FlightNote& note, std::uint64_t stamp, std::int64_t now_ns) {
  store(note.stamp, stamp | 1);
  in_order();
  note.began_ns = note.ended_ns = now_ns;
  in_order();
  store(note.stamp, stamp);
}

bool is_named(const FlightNote& note, std::string_view name) {
  const std::size_t length = std::min(name.size(), sizeof note.name - 1);
  return std::memcmp(note.name, name.data(), length) == 0 && note.name[length] == '\0';
}

}  // namespace

void FlightRecorder::open(const std::string& path, int page, int rank) {
  if (path.empty() || page < 0 || page_ != nullptr) return;
  const os::Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  const auto offset = static_cast<off_t>(page) * static_cast<off_t>(kFlightPageBytes);
  struct stat found {};
  // The path contains the pid of the agent. If the agent is gone, another process may have that
  // pid; its file must not be touched.
  if (!fd.valid() || ::fstat(fd.get(), &found) != 0 || !S_ISREG(found.st_mode) ||
      found.st_size % static_cast<off_t>(kFlightPageBytes) != 0 ||
      found.st_size < offset + static_cast<off_t>(kFlightPageBytes)) {
    return;
  }
  os::MappedPart mapped(fd.get(), offset, kFlightPageBytes);
  if (!mapped.valid()) return;
  auto* const page_of_file = static_cast<rendezvous::FlightPage*>(mapped.data());
  // A regular file of the right size may still be somebody else's.
  if (page_of_file->magic != rendezvous::kFlightMagic) return;
  mapped_ = std::move(mapped);
  page_ = page_of_file;
  // A rank that joins again starts with empty notes.
  for (FlightNote& note : page_->asked) note.stamp = 0;
  for (FlightNote& note : page_->steps) note.stamp = 0;
  page_->rank = rank;
  enter(FlightState::kJoining);
}

void FlightRecorder::enter(FlightState state) {
  if (page_ == nullptr) return;
  // The time first: a reader never sees the new state with the time of the old one.
  store(page_->since_ns, nanoseconds(Clock::now()));
  in_order();
  store(page_->state, state);
}

void FlightRecorder::joined(std::uint64_t process_sets) {
  changed_sets(process_sets);
  enter(FlightState::kRunning);
}

void FlightRecorder::changed_sets(std::uint64_t process_sets) {
  if (page_ != nullptr) std::atomic_ref(page_->process_sets).store(process_sets);  // any thread
}

FlightRecorder::~FlightRecorder() { world_ended(); }

void FlightRecorder::taken(const Request& request, Clock::time_point submitted) {
  if (page_ == nullptr) return;
  write_note(page_->asked[asked_++ % kFlightAsked], stamp_ += 2, nanoseconds(submitted), 1,
             request);
}

void FlightRecorder::agreed(std::span<const Response* const> responses, Clock::time_point now) {
  if (page_ == nullptr) return;
  for (FlightNote& note : page_->asked) {
    if (note.stamp == 0 || note.ended_ns != 0) continue;
    // Searched from the end: the last request is usually the last response, too.
    for (std::size_t left = responses.size(); left > 0; --left) {
      if (!is_named(note, responses[left - 1]->agreed.name)) continue;
      note.ended_ns = nanoseconds(now);
      break;
    }
  }
}

void FlightRecorder::step_begins(int place, std::span<const Response* const> step,
                                 Clock::time_point now) {
  if (page_ == nullptr || step.empty()) return;
  // Several steps may run at once; each place remembers the note of its own.
  begun_[static_cast<std::size_t>(place) % begun_.size()] = steps_;
  write_note(page_->steps[steps_++ % kFlightSteps], stamp_ += 2, nanoseconds(now), step.size(),
             step.front()->agreed);
}

void FlightRecorder::step_ends(int place, Clock::time_point now) {
  if (page_ == nullptr || steps_ == 0) return;
  const std::size_t step = begun_[static_cast<std::size_t>(place) % begun_.size()];
  // A newer note may have taken its slot.
  if (steps_ - step <= kFlightSteps) page_->steps[step % kFlightSteps].ended_ns = nanoseconds(now);
  ++page_->collectives;
}

void FlightRecorder::ran_at_once(const Request& request, Clock::time_point now) {
  if (page_ == nullptr) return;
  // The same again, as a rule: its note says all but the time. Nothing else runs.
  FlightNote* note = &page_->steps[(steps_ + kFlightSteps - 1) % kFlightSteps];
  if (last_at_once_ != steps_ || !is_named(*note, request.name)) {
    note = &page_->steps[steps_++ % kFlightSteps];
    write_note(*note, stamp_ += 2, nanoseconds(now), 1, request);
    last_at_once_ = steps_;
  }
  write_again(*note, stamp_ += 2, nanoseconds(now));
  ++page_->collectives;
}

void FlightRecorder::lost_record(std::string_view what) {
  if (page_ != nullptr) copy_text(page_->lost_record, what);
}

// Not where the world has ended, or is about to: then this rank only follows.
void FlightRecorder::asks_to_leave() {
  if (page_ == nullptr) return;
  store(page_->since_ns, nanoseconds(Clock::now()));
  FlightState running = FlightState::kRunning;
  std::atomic_ref(page_->state)
      .compare_exchange_strong(running, FlightState::kLeft, std::memory_order_release);
}

void FlightRecorder::others_left() { enter(FlightState::kEnded); }

// A rank that has left stays so: that was earlier.
void FlightRecorder::world_ended() {
  if (page_ == nullptr) return;
  const FlightState state = std::atomic_ref(page_->state).load(std::memory_order_relaxed);
  if (state != FlightState::kLeft) enter(FlightState::kEnded);
}

}  // namespace hora::collectives
