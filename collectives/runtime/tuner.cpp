// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/tuner.h"

#include <algorithm>
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
  path_ = path;
  // Each line is flushed: the file is read while the job runs, and the job may be killed.
  file_.open(path, std::ios::trunc);
  if (file_) file_ << kHeader << std::flush;
  if (!file_) lose_log();
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
  if (!file_) lose_log();
}

// A log that cannot be written must not end a training job.
void Tuning::lose_log() {
  os::log_error("autotune", "HOROVOD_AUTOTUNE_LOG=" + path_ + ": " + std::strerror(errno) +
                                "; autotuning continues without a log");
  file_.close();
}

void Tuner::start(const World& world, const ProcessSet& set) {
  const Settings& settings = world.settings;
  const RankInfo& agreed = world.agreed();
  parameters_ = agreed.parameters;
  // Rank 0 measures and decides for all; the others get each change as a response like any other.
  if (!world.coordinates() || !settings.autotune || settings.size == 1) return;
  // In deterministic mode, the order of additions must not depend on measurements.
  const bool order_may_change = !agreed.deterministic || set.keeps_order;
  const auto any = [&](auto what) {
    return std::any_of(set.backends.begin(), set.backends.end(), what);
  };
  const bool composed =
      any([](const SetBackend& each) { return each.algorithm == Algorithm::kComposed; });
  Tunables tunables = settings.tunable;
  tunables.fusion = tunables.fusion && order_may_change;
  tunables.cycle_time = tunables.cycle_time && order_may_change;
  tunables.hierarchical = tunables.hierarchical && composed && order_may_change;
  tunables.shm =
      tunables.shm && any([](const SetBackend& each) { return each.has(kUsesSizeHints); });
  if (!tunables.any()) {
    return os::log_warn("autotune", "every parameter is set explicitly: there is nothing to tune");
  }
  tuning_.emplace(parameters_, tunables, settings.autotune_options);
  tuning_->open_log(settings.autotune_log,
                    {composed && agreed.hierarchical_allgather != Choice::kOff, composed,
                     agreed.cache_capacity > 0});
}

std::vector<Tuner::Reduced> Tuner::reductions_of(const ProcessSet& set,
                                                 const std::vector<const Response*>& responses) {
  std::vector<Reduced> reductions;
  const Request& first = responses.front()->agreed;
  // Scores compare bytes per time of one kind of work: that of gradients.
  if (set.id != 0 || first.action != Action::kAllreduce || first.reduce_op == HORA_ADASUM) {
    return reductions;
  }
  for (const Response* response : responses) {
    const Request& agreed = response->agreed;
    reductions.push_back({agreed.name, element_count(agreed.shape) *
                                           static_cast<std::int64_t>(dtype_bytes(agreed.dtype))});
  }
  return reductions;
}

void Tuner::ran(std::span<const Reduced> reductions, Clock::time_point now) {
  if (!tuning_) return;
  for (const Reduced& each : reductions) tuning_->ran(each.name, each.bytes, now);
}

std::unique_ptr<Response> Tuner::take_change() {
  if (!tuning_) return nullptr;
  const auto change = tuning_->take_change();
  if (!change) {
    // The last change has been announced; from here on nothing is measured.
    if (tuning_->finished()) tuning_.reset();
    return nullptr;
  }
  auto response = std::make_unique<Response>();
  response->agreed.action = Action::kTune;
  response->agreed.name = "hora.tune";
  response->numbers = to_numbers(*change);
  return response;
}

bool Tuner::change(const Response& response, Clock::time_point now) {
  const auto parameters = from_numbers(response.numbers);
  if (!parameters) return false;
  parameters_ = *parameters;
  if (tuning_) tuning_->changed(now);
  return true;
}

}  // namespace hora::collectives
