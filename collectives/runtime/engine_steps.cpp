// How an engine runs what has been agreed: one step after the other, or several under way at once
// where their backend lets them (NCCL, on streams of their own).
//
// Every rank begins the steps that it has a part in in the order in which they were agreed, which
// is the same on all. A step that waits for room waits for earlier ones alone, so of all steps that
// have not ended anywhere the first has been begun by all its ranks, and ends.
#include <algorithm>

#include "collectives/runtime/engine.h"

namespace hora::collectives {

void Engine::run_collective(ProcessSet& set, const std::vector<const AgreedOp*>& step) {
  std::vector<const Response*> responses;
  std::vector<OperationPtr> owned;
  std::vector<Operation*> operations;
  responses.reserve(step.size());
  owned.reserve(step.size());
  operations.reserve(step.size());
  for (const AgreedOp* each : step) {
    const Response& response = *each->response;
    responses.push_back(&response);
    owned.push_back(take_pending(set, *each));
    operations.push_back(owned.back().get());
    const bool joined = std::count(response.joined.begin(), response.joined.end(), set.index) > 0;
    if (operations.back() == nullptr && !joined) {
      for (OperationPtr& operation : owned) {
        if (operation != nullptr) set.add_pending(std::move(operation));
      }
      return give_up("it never asked for '" + response.agreed.name + "', which it is told to run");
    }
  }
  UnderWay fresh{++steps_, &set, std::move(owned), {set, responses, operations, parameters_}, {}};
  if (!wait_for_steps(fresh.run.most_under_way())) {
    return finish_all(fresh.operations, HORA_ABORTED, end_text_);
  }
  if (tuning_) fresh.reductions = reductions_of(set, responses);
  const int place = free_place();
  observer_.step_begins(place, responses, Clock::now());
  if (watchdog_->watches()) {
    const Request& first = responses.front()->agreed;
    step_title_.assign(action_name(first.action)).append(" '").append(first.name).append("'");
    watchdog_->in_step(fresh.number, set.id, step_title_);
  }
  if (fresh.run.begin(observer_.activities(place)) != RunningStep::State::kUnderWay) {
    return end_step(place, fresh);
  }
  const auto at = static_cast<std::size_t>(place);
  if (under_way_.size() <= at) under_way_.resize(at + 1);
  under_way_[at] = std::make_unique<UnderWay>(std::move(fresh));
  ++under_way_count_;
  // Where none can be beside it, nobody is to wait for its end longer than necessary.
  if (under_way_[at]->run.most_under_way() == 1) wait_for_steps(1);
}

// The first that no step has.
int Engine::free_place() const {
  const auto free = std::find(under_way_.begin(), under_way_.end(), nullptr);
  return static_cast<int>(free - under_way_.begin());
}

// Waits until fewer steps than `most` are under way. False: the world has ended meanwhile.
bool Engine::wait_for_steps(int most) {
  while (!ended() && under_way_count_ >= most) {
    update_watchdog();
    look_at_steps();
  }
  return !ended();
}

// Answers whether one has ended. A look takes a moment, so that this may be done again and again.
bool Engine::look_at_steps() {
  bool some = false;
  for (std::size_t place = 0; place < under_way_.size() && !ended(); ++place) {
    if (under_way_[place] == nullptr ||
        under_way_[place]->run.look() == RunningStep::State::kUnderWay) {
      continue;
    }
    some = true;
    --under_way_count_;
    const std::unique_ptr<UnderWay> step = std::move(under_way_[place]);
    end_step(static_cast<int>(place), *step);
  }
  return some;
}

void Engine::end_step(int place, UnderWay& step) {
  const RunningStep::State state = step.run.state();
  const bool good = state == RunningStep::State::kDone;
  watchdog_->goes_on();
  observer_.step_ends(place, good, Clock::now());
  if (state == RunningStep::State::kBroken) {
    for (OperationPtr& operation : step.operations) {
      if (operation != nullptr) step.set->add_pending(std::move(operation));
    }
    if (const auto who = silent_ranks(); !who.empty()) {
      return end_for_silence("in " + step.run.what(), who);
    }
    return data_plane_failed(step.run.text(), step.run.own_failure() ? Origin::kHere
                                              : pool_.aborted()      ? Origin::kElsewhere
                                                                     : Origin::kUnknown);
  }
  if (tuning_ && good) {
    const auto now = Clock::now();
    for (const Reduced& each : step.reductions) tuning_->ran(each.name, each.bytes, now);
  }
  if (good) return finish_all(step.operations, HORA_OK, {});
  std::string text = step.run.text();
  for (const auto& [id, why] : pool_.left_out()) text += "\n  " + id + " was left out: " + why;
  finish_all(step.operations, HORA_UNSUPPORTED, text);
}

// The world has ended, and the backends know: what is under way ends soon, and its results are
// nobody's.
void Engine::abandon_steps() {
  for (std::size_t place = 0; place < under_way_.size(); ++place) {
    if (under_way_[place] == nullptr) continue;
    UnderWay& step = *under_way_[place];
    while (step.run.look() == RunningStep::State::kUnderWay) {
    }
    observer_.step_ends(static_cast<int>(place), false, Clock::now());
    for (OperationPtr& operation : step.operations) {
      if (operation != nullptr) step.set->add_pending(std::move(operation));
    }
  }
  under_way_.clear();
  under_way_count_ = 0;
}

}  // namespace hora::collectives
