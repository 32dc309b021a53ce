// SPDX-License-Identifier: Apache-2.0
#include "collectives/trace/flight_recorder.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <utility>

#include "collectives/trace/observer.h"
#include "rendezvous/contract/flight_record.h"
#include "rendezvous/contract/stack_record.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/files.h"
#include "rendezvous/os/threads.h"

namespace hora::collectives {

// Each thread of this process writes its own stack when the agent sends it a signal. The handler
// may interrupt any instruction, an allocation included, so it uses no lock and no memory of its
// own: it takes a slot of the shared area by one atomic increment.

namespace {

using rendezvous::FlightPage;
using rendezvous::kStackAreaBytes;
using rendezvous::kStackFrames;
using rendezvous::kStackThreads;
using rendezvous::StackArea;
using rendezvous::StackSlot;

std::atomic<StackArea*> area_in_use{nullptr};

struct Walk {
  StackSlot* slot = nullptr;
  bool beyond_signal = false;  // the frames of the handler itself are passed over
};

_Unwind_Reason_Code take_frame(_Unwind_Context* context, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  int before_instruction = 0;
  const auto pc = static_cast<std::uint64_t>(_Unwind_GetIPInfo(context, &before_instruction));
  // The unwinder marks the frame below the signal: its address is that of an instruction, not of a
  // return.
  if (before_instruction != 0) walk.beyond_signal = true;  // the interrupted function
  if (!walk.beyond_signal || pc == 0) return _URC_NO_REASON;
  if (walk.slot->frames >= kStackFrames) return _URC_END_OF_STACK;
  // A return address may already belong to the next function, so record the address of the call.
  walk.slot->pcs[walk.slot->frames++] = before_instruction != 0 ? pc : pc - 1;
  return _URC_NO_REASON;
}

void write_stack(int, siginfo_t*, void*) {
  // The interrupted code may be about to read errno.
  const int saved = errno;
  StackArea* area = area_in_use.load(std::memory_order_acquire);
  if (area != nullptr) {
    const std::uint64_t request = area->request.load(std::memory_order_acquire);
    const std::uint64_t index = area->taken.fetch_add(1, std::memory_order_relaxed);
    if (index < kStackThreads) {
      StackSlot& slot = area->slots[index];
      slot.frames = 0;
      slot.tid = static_cast<std::uint32_t>(::syscall(SYS_gettid));
      slot.thread_id = static_cast<std::uint64_t>(::pthread_self());
      Walk walk{&slot};
      _Unwind_Backtrace(take_frame, &walk);
      // Last, with release: a slot whose request number is current is complete.
      std::atomic_ref(slot.request).store(request, std::memory_order_release);
    }
  }
  errno = saved;
}

// Maps the stack area of that page; not valid if the file has none.
os::MappedPart map_area(const os::Fd& file, int page) {
  struct stat found {};
  std::uint64_t offset = 0;
  const auto place = static_cast<off_t>(page) * static_cast<off_t>(rendezvous::kFlightPageBytes) +
                     static_cast<off_t>(offsetof(FlightPage, stacks_offset));
  // The offset comes from a file that another process writes: every bound is checked before it is
  // mapped.
  if (!file.valid() || ::fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode) ||
      ::pread(file.get(), &offset, sizeof offset, place) != sizeof offset || offset == 0 ||
      offset % rendezvous::kFlightPageBytes != 0 ||
      found.st_size < static_cast<off_t>(kStackAreaBytes) ||
      offset > static_cast<std::uint64_t>(found.st_size) - kStackAreaBytes) {
    return {};
  }
  os::MappedPart mapped(file.get(), static_cast<off_t>(offset), kStackAreaBytes);
  if (mapped.valid() &&
      static_cast<const StackArea*>(mapped.data())->magic != rendezvous::kStackMagic) {
    return {};
  }
  return mapped;
}

}  // namespace

void offer_stacks(const std::string& path, int page) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (path.empty() || page < 0 || area_in_use.load() != nullptr) return;
  const os::Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  os::MappedPart mapped = map_area(file, page);
  if (!mapped.valid()) return;
  // The program or a library may use this signal itself; then its stacks are not available.
  struct sigaction before {};
  if (::sigaction(os::stack_signal(), nullptr, &before) != 0 || before.sa_handler != SIG_DFL) {
    return;
  }
  // The unwinder's first walk may allocate while it finds its tables, so it happens here and not in
  // a signal handler.
  StackSlot scratch;
  Walk walk{&scratch};
  _Unwind_Backtrace(take_frame, &walk);
  auto* const area = static_cast<StackArea*>(mapped.data());
  mapped.keep();  // a handler may run at any later moment
  area_in_use.store(area, std::memory_order_release);
  struct sigaction action {};
  action.sa_sigaction = write_stack;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  ::sigfillset(&action.sa_mask);
  // The agent signals only a process whose pid is here: the default action of the signal would end
  // any other.
  if (::sigaction(os::stack_signal(), &action, nullptr) == 0) area->pid.store(::getpid());
}

// A page of shared memory per rank, owned by the agent, which reads it after the rank has died or
// while it hangs. The rank only stores: no lock, no system call, no allocation, so recording is
// cheap enough to be always on.

namespace {

using rendezvous::FlightNote;
using rendezvous::FlightState;
using rendezvous::kFlightAsked;
using rendezvous::kFlightPageBytes;
using rendezvous::kFlightSteps;

static_assert(Observer::kLastTaken >= kFlightAsked);

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
  // A regular file of the right size may still belong to another program.
  if (page_of_file->magic != rendezvous::kFlightMagic) return;
  mapped_ = std::move(mapped);
  page_ = page_of_file;
  // A rank that joins again starts with empty notes.
  for (FlightNote& note : page_->asked) note.stamp = 0;
  for (FlightNote& note : page_->steps) note.stamp = 0;
  page_->rank = rank;
  wait_from(0);
  enter(FlightState::kJoining);
}

void FlightRecorder::wait_from(std::int64_t since_ns) {
  waiting_since_ns_ = since_ns;
  store(page_->waiting_since_ns, since_ns);
}

// A reader between the two stores adds the wait that has ended twice, or not at all, once.
void FlightRecorder::end_wait(std::int64_t now_ns) {
  if (waiting_since_ns_ == 0) return;
  const std::int64_t waited = std::max<std::int64_t>(now_ns - waiting_since_ns_, 0);
  wait_from(0);
  store(page_->waited_ns, page_->waited_ns + static_cast<std::uint64_t>(waited));
}

void FlightRecorder::enter(FlightState state) {
  if (page_ == nullptr) return;
  const std::int64_t now_ns = nanoseconds_of(Clock::now());
  if (state == FlightState::kEnded) end_wait(now_ns);
  // The time first: a reader never sees the new state with the time of the old one.
  store(page_->since_ns, now_ns);
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
  const std::int64_t since = nanoseconds_of(submitted);
  write_note(page_->asked[asked_++ % kFlightAsked], stamp_ += 2, since, 1, request);
  // Several requests wait at once; what counts is the time in which one does.
  if (request.process_set == 0 && waiting_since_ns_ == 0) {
    wait_from(std::max(since, last_agreed_ns_));
  }
}

void FlightRecorder::agreed(std::span<const Response* const> responses, Clock::time_point now) {
  if (page_ == nullptr) return;
  const std::int64_t now_ns = nanoseconds_of(now);
  bool waits = false;
  for (FlightNote& note : page_->asked) {
    if (note.stamp == 0 || note.ended_ns != 0) continue;
    // Searched from the end: the last request is usually the last response, too.
    for (std::size_t left = responses.size(); left > 0; --left) {
      if (!is_named(note, responses[left - 1]->agreed.name)) continue;
      note.ended_ns = now_ns;
      break;
    }
    waits = waits || (note.ended_ns == 0 && note.process_set == 0);
  }
  end_wait(now_ns);
  last_agreed_ns_ = now_ns;
  if (waits) wait_from(now_ns);
}

void FlightRecorder::step_begins(int place, std::span<const Response* const> step,
                                 Clock::time_point now) {
  if (page_ == nullptr || step.empty()) return;
  // With the beginning, because a step's end no longer has its tensors.
  std::uint64_t bytes = page_->bytes;
  for (const Response* response : step)
    bytes += static_cast<std::uint64_t>(tensor_bytes(response->agreed));
  store(page_->bytes, bytes);
  // Several steps may run at once; each place remembers the note of its own.
  begun_[static_cast<std::size_t>(place) % begun_.size()] = steps_;
  write_note(page_->steps[steps_++ % kFlightSteps], stamp_ += 2, nanoseconds_of(now), step.size(),
             step.front()->agreed);
}

void FlightRecorder::step_ends(int place, Clock::time_point now) {
  if (page_ == nullptr || steps_ == 0) return;
  const std::size_t step = begun_[static_cast<std::size_t>(place) % begun_.size()];
  // A newer note may have taken its slot.
  if (steps_ - step <= kFlightSteps)
    page_->steps[step % kFlightSteps].ended_ns = nanoseconds_of(now);
  store(page_->collectives, page_->collectives + 1);
}

void FlightRecorder::ran_at_once(const Request& request, Clock::time_point now) {
  if (page_ == nullptr) return;
  // The same again, as a rule: its note says all but the time. Nothing else runs.
  FlightNote* note = &page_->steps[(steps_ + kFlightSteps - 1) % kFlightSteps];
  if (last_at_once_ != steps_ || !is_named(*note, request.name)) {
    note = &page_->steps[steps_++ % kFlightSteps];
    write_note(*note, stamp_ += 2, nanoseconds_of(now), 1, request);
    last_at_once_ = steps_;
    at_once_bytes_ = static_cast<std::uint64_t>(tensor_bytes(request));
  }
  write_again(*note, stamp_ += 2, nanoseconds_of(now));
  page_->bytes += at_once_bytes_;
  ++page_->collectives;
}

// A reader may see some numbers of one second and some of the next.
void FlightRecorder::gpus(const rendezvous::FlightGpus& now) {
  if (page_ == nullptr) return;
  store(page_->gpus.percent, now.percent);
  store(page_->gpus.used_bytes, now.used_bytes);
  store(page_->gpus.total_bytes, now.total_bytes);
  store(page_->gpus.peak_bytes, now.peak_bytes);
  store(page_->gpus.percent_sum, now.percent_sum);
  store(page_->gpus.samples, now.samples);
  store(page_->gpus.count, now.count);
}

void FlightRecorder::lost_record(std::string_view what) {
  if (page_ != nullptr) copy_text(page_->lost_record, what);
}

// Not where the world has ended, or is about to: then this rank only follows.
void FlightRecorder::asks_to_leave() {
  if (page_ == nullptr) return;
  store(page_->since_ns, nanoseconds_of(Clock::now()));
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
