// SPDX-License-Identifier: Apache-2.0
// The thread that drives the runtime writes records into a ring, without locks or system calls, and
// a writer thread formats them. If the writer cannot keep up, whole operations are left out and
// counted: the runtime never waits for a disk.
#include "collectives/trace/timeline.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "collectives/types.h"
#include "rendezvous/os/log.h"
#include "rendezvous/os/threads.h"

namespace hora::collectives {

namespace {

// How long a record may wait for the writer.
constexpr int kWriterPauseMs = 50;

std::int64_t now_ns() { return nanoseconds_of(Clock::now()); }

TraceLabel label_of(const Request& request) {
  switch (request.action) {
    case Action::kAllreduce:
      return request.reduce_op == HORA_ADASUM ? TraceLabel::kAdasum : TraceLabel::kAllreduce;
    case Action::kAllgather:
      return TraceLabel::kAllgather;
    case Action::kBroadcast:
      return TraceLabel::kBroadcast;
    case Action::kAlltoall:
      return TraceLabel::kAlltoall;
    case Action::kReducescatter:
      return TraceLabel::kReducescatter;
    case Action::kBarrier:
      return TraceLabel::kBarrier;
    case Action::kJoin:
      return TraceLabel::kJoin;
    default:
      return TraceLabel::kError;
  }
}

// Internal operations of the runtime are not shown.
bool is_shown(const Request& request) { return request.action < Action::kAddProcessSet; }

// One row of the picture for all barriers, for all joins, and for each tensor of each process set.
std::string row_name(const Request& request) {
  std::string name = request.name;
  if (request.action == Action::kBarrier) name = "barrier.noname";
  if (request.action == Action::kJoin) name = "join.noname";
  if (request.process_set != 0) {
    name += " (process set " + std::to_string(request.process_set) + ")";
  }
  return name;
}

// Passes the lines of the formatter to the file.
class FileSink final : public EventSink {
 public:
  explicit FileSink(TraceFile& file) : file_(file) {}
  void event(std::string_view json) override { file_.append(json); }

 private:
  TraceFile& file_;
};

}  // namespace

Result<std::unique_ptr<Timeline>> Timeline::open(Options options) {
  auto file = TraceFile::open(options.path, options.most_bytes);
  if (!file) return std::move(file).error();
  options.identity.start_ns = now_ns();
  options.identity.epoch_us = std::chrono::duration_cast<std::chrono::microseconds>(
                                  std::chrono::system_clock::now().time_since_epoch())
                                  .count();
  std::unique_ptr<Timeline> self(new Timeline(std::move(*file), std::move(options)));
  auto thread = os::start_service_thread(
      "hora-timeline", [timeline = self.get()] { timeline->write_until_closed(); });
  if (!thread) return std::move(thread).error();
  self->thread_ = std::move(*thread);
  return self;
}

Timeline::Timeline(TraceFile file, Options options)
    : path_(std::move(options.path)),
      on_lost_(std::move(options.on_lost)),
      ring_(options.ring_bytes),
      mark_cycles_(options.identity.mark_cycles),
      file_(std::move(file)),
      identity_(std::move(options.identity)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Timeline::~Timeline() {
  if (!thread_.joinable()) return;
  // Pairs with the acquire load in write_until_closed(): the last drain sees every record.
  stopping_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(wake_.get(), &one, sizeof one);
  thread_.join();
}

void Timeline::write_until_closed() {
  FileSink sink(file_);
  ChromeFormat format(std::move(identity_), sink);
  format.begin();
  bool closed = false;
  for (bool last = false; !last;) {
    // Before the drain, not after it: what was recorded before stop() is still written.
    last = stopping_.load(std::memory_order_acquire);
    // Also before the drain, so that a ring that fills up again wakes the writer again.
    nudged_.store(false, std::memory_order_relaxed);
    ring_.drain([&](const char* record) {
      // The ring is drained all the same, or its producer would count losses.
      if (closed) return;
      format.consume(record);
      if (!file_.nearly_full()) return;
      format.remark("TIMELINE_FULL", format.newest_ns());
      os::log_warn("timeline", path_ +
                                   " has reached its largest size (HORA_TIMELINE_LIMIT_MB); "
                                   "nothing more is recorded in it");
      closed = true;
    });
    // Flushed as a closed array each time: a process that is killed leaves a readable file.
    if (!file_.flush() && !closed) {
      report_lost();
      closed = true;
    }
    if (last) {
      // Closing can fail on its own (quota, NFS); a failure is reported once.
      const bool had_failed = !file_.failure().empty();
      if (!file_.close() && !had_failed) report_lost();
      return;
    }
    pollfd fd{wake_.get(), POLLIN, 0};
    if (::poll(&fd, 1, kWriterPauseMs) > 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const ssize_t ignored = ::read(wake_.get(), &count, sizeof count);
    }
  }
}

void Timeline::report_lost() {
  os::log_error("timeline", path_ + ": " + file_.failure() + "; nothing more is recorded");
  if (on_lost_) on_lost_(file_.failure());
}

Timeline::TensorState& Timeline::known(const Request& request) {
  // The common case looks up by the tensor's own name, without building a string.
  const bool plain = request.process_set == 0 && request.action != Action::kBarrier &&
                     request.action != Action::kJoin;
  const auto found = tensors_.find(plain ? request.name : scratch_ = row_name(request));
  if (found != tensors_.end()) return found->second;
  const std::string& name = plain ? request.name : scratch_;
  TensorState& fresh = tensors_[name];
  fresh.number = next_number_++;
  put({.kind = TraceKind::kTensor, .tensor = fresh.number}, name);
  return fresh;
}

// Reserves an eighth of the ring for events of operations that are already in it.
bool Timeline::room_for_more() {
  if (ring_.used() > ring_.capacity() / 8 * 7) {
    ++lost_;
    return false;
  }
  // Marks the gap at the place where it ends.
  if (lost_ > 0)
    put({.kind = TraceKind::kLost, .value = std::exchange(lost_, 0), .time_ns = now_ns()});
  return true;
}

void Timeline::put(TraceRecord record, std::string_view payload) {
  record.payload_bytes = static_cast<std::uint32_t>(payload.size());
  record.bytes = static_cast<std::uint32_t>((sizeof record + payload.size() + 7) / 8 * 8);
  char* place = ring_.reserve(record.bytes);
  if (place == nullptr) {
    ++lost_;
    return;
  }
  std::memcpy(place, &record, sizeof record);
  if (!payload.empty()) std::memcpy(place + sizeof record, payload.data(), payload.size());
}

void Timeline::publish() {
  ring_.commit();
  // Half full: one wake-up instead of waiting for the writer's pause. One write to the eventfd at
  // most per drain.
  if (ring_.used() < ring_.capacity() / 2 || nudged_.exchange(true, std::memory_order_relaxed)) {
    return;
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(wake_.get(), &one, sizeof one);
}

void Timeline::taken(const Request& request, Clock::time_point submitted) {
  if (!is_shown(request) || !room_for_more()) return;
  TensorState& tensor = known(request);
  tensor.recording = true;
  if (tensor.dtype != request.dtype || tensor.shape != request.shape) {
    tensor.dtype = request.dtype;
    tensor.shape = request.shape;
    put({.kind = TraceKind::kShape,
         .tensor = tensor.number,
         .value = static_cast<std::uint32_t>(request.dtype)},
        format_shape(request.shape));
  }
  put({.kind = TraceKind::kTaken,
       .tensor = tensor.number,
       .value = static_cast<std::uint32_t>(label_of(request)),
       .time_ns = nanoseconds_of(submitted)});
  publish();
}

void Timeline::arrived(int rank, const Request& request) {
  if (!is_shown(request) || !room_for_more()) return;
  TensorState& tensor = known(request);
  tensor.recording = true;
  put({.kind = TraceKind::kArrived,
       .extra = static_cast<std::uint16_t>(label_of(request)),
       .tensor = tensor.number,
       .value = static_cast<std::uint32_t>(rank),
       .time_ns = now_ns()});
  publish();
}

void Timeline::agreed(const Response& response, Clock::time_point now) {
  if (!is_shown(response.agreed)) return;
  TensorState& tensor = known(response.agreed);
  // Its begin was left out, so its end is, too.
  if (!std::exchange(tensor.recording, false)) return;
  const TraceLabel label =
      response.status == HORA_OK ? label_of(response.agreed) : TraceLabel::kError;
  put({.kind = TraceKind::kAgreed,
       .tensor = tensor.number,
       .value = static_cast<std::uint32_t>(label),
       .time_ns = nanoseconds_of(now)});
  publish();
}

void Timeline::step_begins(int place, std::span<const Response* const> step) {
  members_.clear();
  for (const Response* response : step) members_.push_back(known(response->agreed).number);
  put({.kind = TraceKind::kStepBegins,
       .extra = static_cast<std::uint16_t>(place),
       .time_ns = now_ns()},
      {reinterpret_cast<const char*>(members_.data()), members_.size() * sizeof members_[0]});
  publish();
}

void Timeline::step_ends(int place, bool good) {
  put({.kind = TraceKind::kStepEnds,
       .extra = static_cast<std::uint16_t>(place),
       .value = good ? 1u : 0u,
       .time_ns = now_ns()});
  publish();
}

void Timeline::activity_begins(int place, const char* name) {
  put({.kind = TraceKind::kActivityBegins,
       .extra = static_cast<std::uint16_t>(place),
       .time_ns = now_ns()},
      name);
  publish();
}

void Timeline::activity_ends(int place) {
  put({.kind = TraceKind::kActivityEnds,
       .extra = static_cast<std::uint16_t>(place),
       .time_ns = now_ns()});
  publish();
}

void Timeline::cycle() {
  if (!mark_cycles_) return;
  put({.kind = TraceKind::kCycle, .time_ns = now_ns()});
  publish();
}

}  // namespace hora::collectives
