// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/tuning.h"

#include <cerrno>
#include <cstring>

#include "rendezvous/os/log.h"

namespace hora::collectives {

namespace {

// The columns of Horovod's file, followed by Hora's own.
constexpr const char* kHeader =
    "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,"
    "tensor_fusion_threshold,score,shm_small_bytes,shm_part_bytes\n";
constexpr double kMiB = 1 << 20;

}  // namespace

void Tuning::open_log(const std::string& path, TuningInputs inputs) {
  inputs_ = inputs;
  if (path.empty()) return;
  // Each line is flushed: the file is read while the job runs, and the job may be killed.
  file_.open(path, std::ios::trunc);
  // A log that cannot be written is no reason to end a training job.
  if (!file_) {
    return os::log_error("autotune", "HOROVOD_AUTOTUNE_LOG=" + path + ": " + std::strerror(errno) +
                                         "; autotuning continues without a log");
  }
  file_ << kHeader << std::flush;
}

void Tuning::ran(const std::string& name, std::int64_t bytes, Autotuner::TimePoint now) {
  if (const auto trial = tuner_.ran(name, bytes, now)) {
    log(*trial);
    if (tuner_.result()) log(*tuner_.result());  // the last line is the best one
  }
}

void Tuning::log(const Autotuner::Trial& trial) {
  if (!file_.is_open()) return;
  const Parameters& parameters = trial.parameters;
  file_ << (inputs_.composed && parameters.hierarchical_allreduce) << ','
        << inputs_.hierarchical_allgather << ",0," << inputs_.cache_enabled << ','
        << static_cast<double>(parameters.cycle_time_us) / 1000 << ','
        << static_cast<double>(parameters.fusion_threshold_bytes) / kMiB << ',' << trial.score
        << ',' << parameters.shm_small_bytes << ',' << parameters.shm_part_bytes << '\n'
        << std::flush;
}

}  // namespace hora::collectives
