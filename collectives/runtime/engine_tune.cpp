// Autotuning: rank 0 measures and decides, a verdict tells all ranks, and each changes its
// parameters at that place of the list.
#include <algorithm>

#include "collectives/runtime/engine.h"
#include "rendezvous/os/log.h"

namespace hora::collectives {

// On rank 0, when it is asked for and there is something to choose.
void Engine::start_tuning() {
  const Settings& settings = world_.settings;
  if (!coordinates() || !settings.autotune || settings.size == 1) return;
  const ProcessSet& world = *sets_.at(0);
  const Introduction& agreed = agreed_settings();
  // The order in which numbers are added must not depend on what was measured.
  const bool order_may_change = !agreed.deterministic || world.keeps_order;
  const bool composed = world.find_backend(kHierarchical) != nullptr;
  Freedom freedom = settings.tunable;
  freedom.fusion = freedom.fusion && order_may_change;
  freedom.cycle_time = freedom.cycle_time && order_may_change;
  freedom.hierarchical = freedom.hierarchical && composed && order_may_change;
  freedom.shm = freedom.shm && (world.find_backend("shm") != nullptr || composed);
  if (!freedom.any()) {
    return os::log_warn("autotune", "every parameter is given: there is nothing to search for");
  }
  tuning_.emplace(parameters_, freedom, settings.autotune_options);
  tuning_->open_log(settings.autotune_log,
                    {composed && agreed.hierarchical_allgather != Choice::kOff, composed,
                     agreed.cache_capacity > 0});
}

// What of a step is measured, once it has ended.
std::vector<Engine::Reduced> Engine::reductions_of(const ProcessSet& set,
                                                   const std::vector<const Verdict*>& verdicts) {
  std::vector<Reduced> reductions;
  const Request& first = verdicts.front()->agreed;
  if (set.id != 0 || first.action != Action::kAllreduce || first.reduce_op == HORA_ADASUM) {
    return reductions;
  }
  for (const Verdict* verdict : verdicts) {
    const Request& agreed = verdict->agreed;
    reductions.push_back({agreed.name, element_count(agreed.shape) *
                                           static_cast<std::int64_t>(dtype_bytes(agreed.dtype))});
  }
  return reductions;
}

// Rank 0: what is told next is told with it, and runs after it.
void Engine::add_change(std::vector<Told>& list) {
  const auto change = tuning_->take_change();
  if (!change) {
    if (tuning_->finished()) tuning_.reset();
    return;
  }
  auto verdict = std::make_unique<Verdict>();
  verdict->agreed.action = Action::kTune;
  verdict->agreed.name = "hora.tune";
  verdict->numbers = to_numbers(*change);
  list.insert(list.begin(), told(nullptr, std::move(verdict), 0));
}

void Engine::change_parameters(const Verdict& verdict) {
  const auto parameters = from_numbers(verdict.numbers);
  if (!parameters) return give_up("rank 0 sent malformed parameters");
  parameters_ = *parameters;
  if (tuning_) tuning_->changed(Clock::now());
}

}  // namespace hora::collectives
