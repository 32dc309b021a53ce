// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/flight_records.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>

#include "rendezvous/base/time.h"
#include "rendezvous/contract/stack_record.h"

namespace hora::launcher {

// The memory that ranks and agent share: one page per rank for its latest operation, and one area
// per rank for native stacks. It is a memfd, so it survives a rank's crash and vanishes with the
// agent. Ranks open it through /proc/PID/fd.

using rendezvous::FlightPage;
using rendezvous::kStackAreaBytes;
using rendezvous::StackArea;

namespace {

std::int64_t now_ns() { return nanoseconds_of(Clock::now()); }

bool write_at(int fd, const void* bytes, std::size_t size, off_t offset) {
  return ::pwrite(fd, bytes, size, offset) == static_cast<ssize_t>(size);
}

template <typename Value>
bool read_at(int fd, Value& value, off_t offset) {
  return ::pread(fd, &value, sizeof value, offset) == static_cast<ssize_t>(sizeof value);
}

// The ranks write while the agent reads, so it reads single fields at their offsets.
template <std::size_t kOffset>
off_t field(off_t area) {
  return area + static_cast<off_t>(kOffset);
}

}  // namespace

// Pages come first, then the areas for stacks, which take no memory until they are used.
FlightRecords FlightRecords::create(std::vector<int> expected) {
  FlightRecords records;
  const int ranks = static_cast<int>(expected.size());
  records.ranks_ = std::move(expected);
  records.fd_ = os::Fd(::memfd_create("hora-flight", MFD_CLOEXEC));
  // Without the memory the job runs as usual; only the reports lose detail.
  if (!records.fd_.valid()) return records;
  const std::size_t all_pages = static_cast<std::size_t>(ranks) * sizeof(FlightPage);
  const int fd = records.fd_.get();
  if (::ftruncate(fd, static_cast<off_t>(all_pages +
                                         static_cast<std::size_t>(ranks) * kStackAreaBytes)) != 0) {
    return records;
  }
  FlightPage empty;
  empty.magic = rendezvous::kFlightMagic;
  for (; records.pages_ < ranks; ++records.pages_) {
    const auto page = static_cast<std::size_t>(records.pages_);
    empty.stacks_offset = all_pages + page * kStackAreaBytes;
    if (!write_at(fd, &empty, sizeof empty, static_cast<off_t>(page * sizeof empty)) ||
        !write_at(fd, &rendezvous::kStackMagic, sizeof rendezvous::kStackMagic,
                  static_cast<off_t>(empty.stacks_offset))) {
      return records;
    }
  }
  records.path_ = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd);
  return records;
}

// Reads instead of mapping: a rank that cuts the file short would make a mapped page raise SIGBUS.
std::string FlightRecords::copy_of(int page) const {
  std::string bytes(sizeof(FlightPage), '\0');
  const auto offset = static_cast<off_t>(page) * static_cast<off_t>(sizeof(FlightPage));
  const ssize_t got = ::pread(fd_.get(), bytes.data(), bytes.size(), offset);
  return got == static_cast<ssize_t>(bytes.size()) ? bytes : std::string();
}

// A rank writes to the page of its local rank. An unused page means that the rank has not used the
// runtime: each rank that ends is looked up, and looking at all pages for 128 ranks without the
// runtime took a tenth of a short job. If another rank uses it, they have swapped local ranks (a
// script that sets them, an elastic job).
std::string FlightRecords::page_of(int rank) const {
  const auto expected = std::find(ranks_.begin(), ranks_.end(), rank) - ranks_.begin();
  for (int i = 0; i < pages_; ++i) {
    const int page = static_cast<int>((expected + i) % pages_);
    std::string bytes = copy_of(page);
    const auto user = rendezvous::flight_rank(bytes);
    if (user == rank) return settled(page, std::move(bytes));
    if (i == 0 && !user) break;
  }
  return {};
}

// A rank that lives may write meanwhile, and a copy has no order in itself. Two equal copies, one
// after the other, are the page as it was at one moment: stamps only grow. A rank that never pauses
// does not hang, so after a few copies any will do.
std::string FlightRecords::settled(int page, std::string bytes) const {
  constexpr int kMostCopies = 4;
  for (int i = 0; i < kMostCopies; ++i) {
    // Pairs with the release fences of the rank (collectives/trace/flight_recorder.cpp).
    std::atomic_thread_fence(std::memory_order_acquire);
    std::string again = copy_of(page);
    if (again == bytes) break;
    bytes = std::move(again);
  }
  return bytes;
}

std::string FlightRecords::last_of(int rank) const {
  return rendezvous::describe_flight(page_of(rank), now_ns());
}

std::string FlightRecords::lost_of(int rank) const {
  return rendezvous::lost_record(page_of(rank));
}

std::optional<std::chrono::nanoseconds> FlightRecords::left_for(int rank) const {
  const auto left = rendezvous::left_for_ns(page_of(rank), now_ns());
  return left ? std::optional(std::chrono::nanoseconds(*left)) : std::nullopt;
}

RankCounters FlightRecords::counters_of(int rank) const {
  constexpr std::int64_t kNsPerUs = 1'000;
  constexpr std::int64_t kNsPerMs = 1'000'000;
  const auto counted = rendezvous::flight_counters(page_of(rank), now_ns());
  if (!counted) return {};
  const rendezvous::FlightGpus& gpus = counted->gpus;
  const auto bytes = [](std::uint64_t value) {
    return std::min(static_cast<std::int64_t>(value), kMostBytes);
  };
  return {.uses_runtime = true,
          .collectives = std::min(counted->collectives, kMostCounted),
          .bytes = std::min(counted->bytes, kMostCounted),
          .waited_us = counted->waited_ns / kNsPerUs,
          .last_ms = counted->last_ended_ns < 0 ? -1 : counted->last_ended_ns / kNsPerMs,
          .gpu_count = static_cast<int>(std::min<std::uint32_t>(gpus.count, kMostGpus)),
          .gpu_percent = gpus.percent,
          .gpu_mean_percent = gpus.samples == 0 ? -1
                                                : static_cast<int>(std::min<std::uint64_t>(
                                                      gpus.percent_sum / gpus.samples, 100)),
          .gpu_bytes = bytes(gpus.used_bytes),
          .gpu_peak_bytes = bytes(gpus.peak_bytes),
          .gpu_total_bytes = bytes(gpus.total_bytes)};
}

std::optional<rendezvous::FlightStanding> FlightRecords::standing_of(int rank) const {
  return rendezvous::read_flight(page_of(rank), now_ns());
}

// Reads two fields per rank, because this runs often while the job is fine.
FlightRecords::Progress FlightRecords::progress() const {
  using rendezvous::FlightState;
  Progress progress;
  for (int page = 0; page < pages_; ++page) {
    const off_t at = static_cast<off_t>(page) * static_cast<off_t>(sizeof(FlightPage));
    FlightState state = FlightState::kUnused;
    std::uint64_t collectives = 0;
    if (!read_at(fd_.get(), state, field<offsetof(FlightPage, state)>(at)) ||
        !read_at(fd_.get(), collectives, field<offsetof(FlightPage, collectives)>(at)) ||
        state == FlightState::kUnused) {
      continue;
    }
    ++progress.meeting;
    if (state != FlightState::kJoining || collectives > 0) ++progress.joined;
    if (collectives > 0) ++progress.worked;
    progress.collectives += collectives;
  }
  return progress;
}

// A rank enters its own pid when it prepares to answer.
std::optional<off_t> FlightRecords::stacks_of(pid_t pid) const {
  for (int page = 0; page < pages_; ++page) {
    const off_t area = static_cast<off_t>(pages_) * static_cast<off_t>(sizeof(FlightPage)) +
                       static_cast<off_t>(page) * static_cast<off_t>(kStackAreaBytes);
    std::int64_t owner = 0;
    if (read_at(fd_.get(), owner, field<offsetof(StackArea, pid)>(area)) && owner == pid)
      return area;
  }
  return std::nullopt;
}

// The request's number separates this round's answers from late ones of an earlier round. `taken`
// is reset before the new number is published, since threads claim slots by it.
std::optional<std::uint64_t> FlightRecords::begin_stacks(pid_t pid) {
  const auto area = stacks_of(pid);
  std::uint64_t request = 0;
  if (!area || !read_at(fd_.get(), request, field<offsetof(StackArea, request)>(*area)))
    return std::nullopt;
  ++request;
  const std::uint64_t none = 0;
  if (!write_at(fd_.get(), &none, sizeof none, field<offsetof(StackArea, taken)>(*area)) ||
      !write_at(fd_.get(), &request, sizeof request, field<offsetof(StackArea, request)>(*area))) {
    return std::nullopt;
  }
  return request;
}

std::vector<FlightRecords::NativeStack> FlightRecords::read_stacks(pid_t pid,
                                                                   std::uint64_t request) const {
  const auto place = stacks_of(pid);
  if (!place) return {};
  // Read twice: the first copy shows which slots are complete, the second has their frames. A copy
  // is not ordered: on ARM64 the frames in it may be older than the number next to them.
  const auto complete = std::make_unique<StackArea>();
  const auto area = std::make_unique<StackArea>();
  for (StackArea* copy : {complete.get(), area.get()}) {
    if (!read_at(fd_.get(), *copy, *place)) return {};
    // Pairs with the release in the rank's handler (collectives/trace/flight_recorder.cpp).
    std::atomic_thread_fence(std::memory_order_acquire);
  }
  std::vector<NativeStack> stacks;
  for (std::size_t i = 0; i < rendezvous::kStackThreads; ++i) {
    const rendezvous::StackSlot& slot = area->slots[i];
    // A slot with another number is empty, late or half written.
    if (complete->slots[i].request != request || slot.request != request) continue;
    // The rank owns the memory, so its count is not trusted.
    const std::size_t frames = std::min<std::size_t>(slot.frames, rendezvous::kStackFrames);
    stacks.push_back({slot.tid, slot.thread_id, {slot.pcs, slot.pcs + frames}});
  }
  return stacks;
}

namespace {

constexpr Milliseconds kSoon{50};
constexpr Milliseconds kLater{1'000};
constexpr int kSoonLooks = 1'200;  // for a minute: the ranks may never use the runtime

}  // namespace

void ProgressReporter::begin(int ranks) {
  ranks_ = ranks;
  look();
}

void ProgressReporter::stop() {
  loop_.cancel(timer_);
  timer_ = 0;
}

void ProgressReporter::look() {
  const FlightRecords::Progress now = records_.progress();
  if (now != sent_) {
    const auto count = [](int ranks) { return static_cast<std::uint32_t>(ranks); };
    link_.send(RankProgress{count(now.meeting), count(now.joined), count(now.worked)});
    sent_ = now;
  }
  const bool rare = now.worked == ranks_ || ++looks_ > kSoonLooks;
  timer_ = loop_.call_after(rare ? kLater : kSoon, [this] { look(); });
}

}  // namespace hora::launcher
