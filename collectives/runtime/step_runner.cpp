// SPDX-License-Identifier: Apache-2.0
// Steps begin in the agreed order and end in any. A step waits until fewer steps run than its own
// backend allows; a backend that allows one runs alone.
#include "collectives/runtime/step_runner.h"

#include <algorithm>
#include <utility>

#include "collectives/runtime/elastic_world.h"

namespace hora::collectives {

void StepRunner::run(ProcessSet& set, const std::vector<const AgreedOp*>& step) {
  std::vector<const Response*> responses;
  std::vector<OperationPtr> owned;
  responses.reserve(step.size());
  owned.reserve(step.size());
  for (const AgreedOp* each : step) {
    const Response& response = *each->response;
    responses.push_back(&response);
    owned.push_back(take_pending(set, *each));
    // A rank that has joined takes part with a stand-in.
    const bool joined = std::count(response.joined.begin(), response.joined.end(), set.index) > 0;
    if (owned.back() == nullptr && !joined) {
      give_back(set, owned);
      return links_.shutdown.give_up("it was asked to run '" + response.agreed.name +
                                     "' but never requested it");
    }
  }
  run(set, responses, std::move(owned));
}

void StepRunner::run(ProcessSet& set, const std::vector<const Response*>& responses,
                     std::vector<OperationPtr> owned) {
  std::vector<Operation*> operations;
  operations.reserve(owned.size());
  for (const OperationPtr& each : owned) operations.push_back(each.get());
  UnderWay fresh{++begun_,
                 &set,
                 std::move(owned),
                 {set, responses, operations, links_.tuner.parameters()},
                 {}};
  if (const std::string& detour = fresh.run.detour(); !detour.empty()) {
    std::string reason;
    for (const auto& [id, why] : links_.pool.left_out()) {
      if (id == "nccl") reason = " (nccl was left out: " + why + ")";
    }
    links_.pool.note_once("nccl", detour + reason, set.index == 0);
  }
  if (!wait_for_steps(fresh.run.most_under_way())) {
    return links_.queue.finish(std::move(fresh.operations), HORA_ABORTED, links_.shutdown.text());
  }
  // Names are copied only while they are recorded.
  if (links_.tuner.searching()) fresh.reductions = Tuner::reductions_of(set, responses);
  const int place = free_place();
  links_.observer.step_begins(place, responses, Clock::now());
  links_.stalls.in_step(fresh.number, set.id, [&]() -> const std::string& {
    const Request& first = responses.front()->agreed;
    return title_.assign(action_name(first.action)).append(" '").append(first.name).append("'");
  });
  if (fresh.run.begin(links_.observer.activities(place)) != RunningStep::State::kUnderWay) {
    return end(place, fresh);
  }
  const auto at = static_cast<std::size_t>(place);
  if (under_way_.size() <= at) under_way_.resize(at + 1);
  under_way_[at] = std::make_unique<UnderWay>(std::move(fresh));
  ++under_way_count_;
  // If no other step can run at the same time, wait for its end here: that notices it soonest.
  if (under_way_[at]->run.most_under_way() == 1) wait_for_steps(1);
}

void StepRunner::update_watchdog() {
  const auto runs = std::find_if(under_way_.begin(), under_way_.end(),
                                 [](const auto& step) { return step != nullptr; });
  if (runs == under_way_.end()) return;
  const UnderWay& step = **runs;
  links_.stalls.in_step(step.number, step.set->id, [&step] { return step.run.what(); });
}

int StepRunner::free_place() const {
  const auto free = std::find(under_way_.begin(), under_way_.end(), nullptr);
  return static_cast<int>(free - under_way_.begin());
}

bool StepRunner::wait_for_steps(int most) {
  while (!links_.shutdown.ended() && under_way_count_ >= most) {
    update_watchdog();
    look();
  }
  return !links_.shutdown.ended();
}

bool StepRunner::look() {
  bool some = false;
  for (std::size_t place = 0; place < under_way_.size() && !links_.shutdown.ended(); ++place) {
    if (under_way_[place] == nullptr ||
        under_way_[place]->run.look() == RunningStep::State::kUnderWay) {
      continue;
    }
    some = true;
    --under_way_count_;
    const std::unique_ptr<UnderWay> step = std::move(under_way_[place]);
    end(static_cast<int>(place), *step);
  }
  return some;
}

// Returns the operations to their set: the end of the world fails them there.
void StepRunner::give_back(ProcessSet& set, std::vector<OperationPtr>& operations) {
  for (OperationPtr& operation : operations) {
    if (operation != nullptr) set.pending.add(std::move(operation));
  }
}

void StepRunner::end(int place, UnderWay& step) {
  const RunningStep::State state = step.run.state();
  // The operations are finished last: a caller may submit the next one before this returns.
  const bool good = state == RunningStep::State::kDone;
  links_.observer.step_ends(place, good, Clock::now());
  links_.stalls.goes_on();
  if (state == RunningStep::State::kBroken) {
    give_back(*step.set, step.operations);
    if (step.run.unreached() >= 0) note_unreached({false, step.run.unreached()});
    // The watchdog has interrupted the backend; its error is a consequence.
    if (const auto who = links_.shutdown.silent_ranks(); !who.empty()) {
      return links_.shutdown.end_for_silence("in " + step.run.what(), who);
    }
    // Aborted: this rank was interrupted, so the failure began elsewhere.
    const Origin origin = step.run.own_failure()  ? Origin::kHere
                          : links_.pool.aborted() ? Origin::kElsewhere
                                                  : Origin::kUnknown;
    return links_.shutdown.data_plane_failed(step.run.text(), origin);
  }
  if (good && links_.tuner.searching()) links_.tuner.ran(step.reductions, Clock::now());
  if (good) return links_.queue.finish(std::move(step.operations), HORA_OK, {});
  std::string text = step.run.text();
  // No backend can run it; which ones were dropped, and why, usually explains that.
  for (const auto& [id, why] : links_.pool.left_out()) {
    text += "\n  " + id + " was left out: " + why;
  }
  const hora_status status =
      links_.pool.goes_on_without_another() ? HORA_ABORTED : HORA_UNSUPPORTED;
  links_.queue.finish(std::move(step.operations), status, text);
}

// Waits for running steps; their results are discarded.
void StepRunner::abandon() {
  for (std::size_t place = 0; place < under_way_.size(); ++place) {
    if (under_way_[place] == nullptr) continue;
    UnderWay& step = *under_way_[place];
    // The backends are aborted, so this ends soon. Memory of callers must not be released while a
    // library may still write to it.
    while (step.run.look() == RunningStep::State::kUnderWay) {
    }
    links_.observer.step_ends(static_cast<int>(place), false, Clock::now());
    give_back(*step.set, step.operations);
  }
  under_way_.clear();
  under_way_count_ = 0;
}

}  // namespace hora::collectives
