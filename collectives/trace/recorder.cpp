// SPDX-License-Identifier: Apache-2.0
// Hands the events of the engine to the flight recorder and to the timeline, if there is one. A
// caller may stop the timeline at any moment; the engine must not take a lock for each event, so
// the two sides use a hazard flag: the engine sets in_use_, then reads the pointer; the caller
// clears the pointer, then reads in_use_. With sequentially consistent order at least one of the
// two sees the other.
#include "collectives/trace/recorder.h"

#include <exception>
#include <thread>
#include <utility>

namespace hora::collectives {

// The timeline must not disturb the engine: if memory runs out, the recording stops.
template <typename Function>
void Recorder::write_timeline(const Function& function) noexcept {
  if (timeline_.load(std::memory_order_relaxed) == nullptr) return;
  in_use_.store(true, std::memory_order_seq_cst);
  if (Timeline* timeline = timeline_.load(std::memory_order_seq_cst)) {
    try {
      function(*timeline);
    } catch (const std::exception&) {
      timeline_.store(nullptr, std::memory_order_seq_cst);
    }
  }
  in_use_.store(false, std::memory_order_release);
}

template <typename Function>
void Recorder::for_each_range(const Function& function) noexcept {
  if (ranges_ == nullptr) return;
  try {
    function(*ranges_);
  } catch (const std::exception&) {  // out of memory: what is lost is the tool's picture
    ranges_.reset();
  }
}

Status Recorder::start_timeline(Timeline::Options options) {
  stop_timeline();
  // On the writer's thread. The flight record reports it to the launcher, which then fails the
  // job's exit code.
  options.on_lost = [this](const std::string& why) { flight_.lost_record("its timeline: " + why); };
  auto opened = Timeline::open(std::move(options));
  if (!opened) return std::move(opened).error();
  const std::lock_guard<std::mutex> lock(switching_);
  owned_ = std::move(*opened);
  timeline_.store(owned_.get(), std::memory_order_seq_cst);
  return Ok{};
}

void Recorder::stop_timeline() {
  const std::lock_guard<std::mutex> lock(switching_);
  timeline_.store(nullptr, std::memory_order_seq_cst);
  // Short: the engine's thread spends less than a microsecond at a time in the timeline.
  while (in_use_.load(std::memory_order_seq_cst)) std::this_thread::yield();
  owned_.reset();
}

void Recorder::taken(const Request& request, Clock::time_point submitted) noexcept {
  flight_.taken(request, submitted);
  // A user who writes a timeline wants names, and pays for them anyway.
  const bool with_name = timeline_.load(std::memory_order_relaxed) != nullptr;
  for_each_range([&](NvtxRanges& ranges) { ranges.taken(request, with_name); });
  write_timeline([&](Timeline& timeline) { timeline.taken(request, submitted); });
}

void Recorder::arrived(int rank, const Request& request) noexcept {
  write_timeline([&](Timeline& timeline) { timeline.arrived(rank, request); });
}

void Recorder::agreed(std::span<const Response* const> responses, Clock::time_point now) noexcept {
  flight_.agreed(responses, now);
  for_each_range([&](NvtxRanges& ranges) { ranges.agreed(responses); });
  write_timeline([&](Timeline& timeline) {
    timeline.cycle();
    for (const Response* response : responses) timeline.agreed(*response, now);
  });
}

void Recorder::step_begins(int place, std::span<const Response* const> step,
                           Clock::time_point now) noexcept {
  flight_.step_begins(place, step, now);
  for_each_range([&](NvtxRanges& ranges) { ranges.step_begins(place, step); });
  write_timeline([&](Timeline& timeline) { timeline.step_begins(place, step); });
}

void Recorder::step_ends(int place, bool good, Clock::time_point now) noexcept {
  flight_.step_ends(place, now);
  for_each_range([&](NvtxRanges& ranges) { ranges.step_ends(place); });
  write_timeline([&](Timeline& timeline) { timeline.step_ends(place, good); });
}

void Recorder::ran_at_once(const Request& request, Clock::time_point now) noexcept {
  flight_.ran_at_once(request, now);
}

void Recorder::world_ended(std::string_view) noexcept {
  flight_.world_ended();
  for_each_range([](NvtxRanges& ranges) { ranges.end_all(); });
}

Activities* Recorder::activities(int place) noexcept {
  if (timeline_.load(std::memory_order_relaxed) == nullptr) return nullptr;
  const auto at = static_cast<std::size_t>(place);
  try {
    while (activities_.size() <= at) {
      activities_.emplace_back(*this, static_cast<int>(activities_.size()));
    }
  } catch (const std::exception&) {
    return nullptr;
  }
  return &activities_[at];
}

void Recorder::StepActivities::begin(const char* name) noexcept {
  recorder_.write_timeline([&](Timeline& timeline) { timeline.activity_begins(place_, name); });
}

void Recorder::StepActivities::end() noexcept {
  recorder_.write_timeline([&](Timeline& timeline) { timeline.activity_ends(place_); });
}

}  // namespace hora::collectives
