// SPDX-License-Identifier: Apache-2.0
// What the GPUs of this rank do, for the flight record: the agent reports it from there when the
// job is watched.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

#include "collectives/trace/flight_recorder.h"

namespace hora::collectives {

class GpuWatch {
 public:
  // Null, at the cost of one look for a library, where there is no NVIDIA driver. The GPUs are
  // those of CUDA_VISIBLE_DEVICES; without it, the one with this rank's local number. `flight`
  // outlives the watch.
  static std::unique_ptr<GpuWatch> start(FlightRecorder& flight, int local_rank);
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

 private:
  // Shared with the thread, which may outlive the watch inside of a driver that does not answer.
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    bool stopping = false;
    bool ended = false;
  };
  GpuWatch() = default;
  static void run(Shared& shared, void* library, FlightRecorder& flight, int local_rank);

  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace hora::collectives
