// Autotuning: rank 0 measures and decides, a response tells all ranks, and each changes its
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
  const RankInfo& agreed = agreed_settings();
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
                                                   const std::vector<const Response*>& responses) {
  std::vector<Reduced> reductions;
  const Request& first = responses.front()->agreed;
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

// Rank 0: what is told next is told with it, and runs after it.
void Engine::add_change(std::vector<AgreedOp>& list) {
  const auto change = tuning_->take_change();
  if (!change) {
    if (tuning_->finished()) tuning_.reset();
    return;
  }
  auto response = std::make_unique<Response>();
  response->agreed.action = Action::kTune;
  response->agreed.name = "hora.tune";
  response->numbers = to_numbers(*change);
  list.insert(list.begin(), agreed_op(nullptr, std::move(response), 0));
}

void Engine::change_parameters(const Response& response) {
  const auto parameters = from_numbers(response.numbers);
  if (!parameters) return give_up("rank 0 sent malformed parameters");
  parameters_ = *parameters;
  if (tuning_) tuning_->changed(Clock::now());
}

}  // namespace hora::collectives
