// SPDX-License-Identifier: Apache-2.0
// The observer of a communicator: passes the engine's events to the timeline while there is one, to
// a tool of NVIDIA's if one listens, and to the flight recorder always.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "collectives/trace/flight_recorder.h"
#include "collectives/trace/gpu_watch.h"
#include "collectives/trace/nvtx_ranges.h"
#include "collectives/trace/observer.h"
#include "collectives/trace/timeline.h"

namespace hora::collectives {

class Recorder final : public Observer {
 public:
  Recorder() = default;
  ~Recorder() override { stop_timeline(); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Any thread. The file at the path is replaced; a timeline that is being written ends first.
  Status start_timeline(Timeline::Options options);
  // Any thread. When this returns the file is complete.
  void stop_timeline();

  // Before the engine runs. Ranges for a tool of NVIDIA's, if one listens.
  void open_ranges() { ranges_ = NvtxRanges::open(); }

  FlightRecorder& flight() { return flight_; }
  // Once the flight record is open.
  void watch_gpus(int local_rank) { gpus_ = GpuWatch::start(flight_, local_rank); }
  bool wants_all() const noexcept override {
    return ranges_ != nullptr || timeline_.load(std::memory_order_relaxed) != nullptr;
  }

  void taken(const Request& request, Clock::time_point submitted) noexcept override;
  void arrived(int rank, const Request& request) noexcept override;
  void agreed(std::span<const Response* const> responses, Clock::time_point now) noexcept override;
  void step_begins(int place, std::span<const Response* const> step,
                   Clock::time_point now) noexcept override;
  void step_ends(int place, bool good, Clock::time_point now) noexcept override;
  void ran_at_once(const Request& request, Clock::time_point now) noexcept override;
  void others_left() noexcept override { flight_.others_left(); }
  void world_ended(std::string_view why) noexcept override;
  Activities* activities(int place) noexcept override;

 private:
  // For the step in one slot.
  class StepActivities final : public Activities {
   public:
    StepActivities(Recorder& recorder, int place) : recorder_(recorder), place_(place) {}
    void begin(const char* name) noexcept override;
    void end() noexcept override;

   private:
    Recorder& recorder_;
    int place_;
  };

  template <typename Function>
  void write_timeline(const Function& function) noexcept;

  template <typename Function>
  void for_each_range(const Function& function) noexcept;

  FlightRecorder flight_;
  std::unique_ptr<GpuWatch> gpus_;         // null: there are none
  std::unique_ptr<NvtxRanges> ranges_;     // null: no tool listens
  std::deque<StepActivities> activities_;  // by place
  std::mutex switching_;
  std::unique_ptr<Timeline> owned_;
  // Used by the engine's thread; in_use_ says so, and a thread that takes it away waits for that.
  std::atomic<Timeline*> timeline_{nullptr};
  std::atomic<bool> in_use_{false};
};

}  // namespace hora::collectives
