// SPDX-License-Identifier: Apache-2.0
// Phases: warm-up samples that do not count; the search, in which BayesSearch proposes the next
// parameters after each sample; a duel, in which the start and the search's best take turns. The
// duel guards against a winner that only ran while the machine was idle.
#include "collectives/autotune/autotuner.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace hora::collectives {

namespace {

// The median of this many scores ignores a disturbance of one or two of them.
constexpr std::size_t kScoresPerSample = 5;
// A step of the program is over when a tensor's name returns. If none returns, this many reductions
// count as one step.
constexpr std::int64_t kReductionsPerStep = 200;
constexpr std::size_t kFewestForDuel = 4;
// Two samples each, one turn for every six samples, and no more than this. Of two equals, either
// wins all of three turns in one case of eight.
constexpr std::size_t kMostTurns = 3;
// The logarithm of how much faster than the start the finalist has to be, on average of its turns,
// all of which it has to win, to take its place: equally good parameters differ by as much.
constexpr double kLead = 0.02;

}  // namespace

Autotuner::Autotuner(const Parameters& start, Tunables tunables, AutotuneOptions options)
    : space_(start, tunables),
      options_(options),
      search_(
          space_.point_of(start),
          [this](const Point& point) { return space_.point_of(space_.at(point)); },
          options.most_noise),
      start_(start),
      current_(start),
      warmup_left_(options.warmup_samples) {}

void Autotuner::begin_score(TimePoint now) {
  began_ = now;
  bytes_ = 0;
  reductions_ = 0;
}

std::optional<Autotuner::Trial> Autotuner::ran(const std::string& name, std::int64_t bytes,
                                               TimePoint now) {
  // Until all ranks have changed, what runs belongs to no parameters in particular.
  if (result_ || change_) return std::nullopt;
  // The first reduction starts the clock: the time before it belongs to something else.
  if (!began_) {
    begin_score(now);
    return std::nullopt;
  }
  bytes_ += bytes;
  ++reductions_;
  const int steps = std::max(options_.steps_per_sample, 1);
  // The name has come once more than complete steps explain, so steps_per_sample have passed.
  const bool returned = ++seen_[name] > steps * (scored_ + 1);
  if (!returned && reductions_ < steps * kReductionsPerStep) return std::nullopt;
  const double us = std::chrono::duration<double, std::micro>(now - *began_).count();
  scores_.push_back(static_cast<double>(bytes_) / std::max(us, 1e-3));
  ++scored_;
  begin_score(now);
  return scores_.size() < kScoresPerSample ? std::nullopt : finish_sample();
}

std::optional<Autotuner::Trial> Autotuner::finish_sample() {
  const auto middle = scores_.begin() + kScoresPerSample / 2;
  std::nth_element(scores_.begin(), middle, scores_.end());
  const Trial trial{current_, *middle};
  scores_.clear();
  if (warmup_left_ > 0) {
    --warmup_left_;
    return std::nullopt;
  }
  trials_.push_back(trial);
  decide();
  return trial;
}

// How many of the last samples are for the duel: the start and the finalist take turns.
std::size_t Autotuner::duel_samples() const {
  const auto all = static_cast<std::size_t>(std::max(options_.most_samples, 1));
  if (all < kFewestForDuel) return 0;
  return 2 * std::clamp<std::size_t>(all / 6, 1, kMostTurns);
}

std::size_t Autotuner::search_samples() const {
  return static_cast<std::size_t>(std::max(options_.most_samples, 1)) - duel_samples();
}

void Autotuner::decide() {
  const Trial& last = trials_.back();
  Parameters next = current_;
  if (!finalist_) {
    // The logarithm turns ratios into differences: twice as fast counts the same at any speed.
    search_.add_sample(std::log(std::max(last.score, 1e-9)));
    next = space_.at(search_.next());
    if (search_.samples() >= search_samples()) {
      const Point best = search_.best();
      if (best == space_.point_of(start_)) return finish_search(start_);
      if (duel_samples() == 0) return finish_search(space_.at(best));
      finalist_ = space_.at(best);
      next = start_;
    }
  } else {
    next = current_ == start_ ? *finalist_ : start_;
    if (trials_.size() >= search_samples() + duel_samples()) {
      // The samples alternate, so what else the machine does affects both alike.
      const auto score = [this](std::size_t i) {
        return std::log(std::max(trials_[i].score, 1e-9));
      };
      bool wins = true;
      double lead = 0;
      for (std::size_t i = search_samples(); i < trials_.size(); i += 2) {
        const double turn = score(i + 1) - score(i);  // the start comes first
        wins = wins && turn > 0;
        lead += turn;
      }
      const double turns = static_cast<double>(duel_samples()) / 2;
      return finish_search(wins && lead / turns > kLead ? *finalist_ : start_);
    }
  }
  if (next != current_) change_ = next;
}

// Ends the search with a winner and reports its best trial.
void Autotuner::finish_search(const Parameters& winner) {
  Trial found{winner, -1};
  for (const Trial& trial : trials_) {
    // Compared as points, because the start may have values between the steps of a dimension.
    const bool its = space_.point_of(trial.parameters) == space_.point_of(winner);
    if (its && trial.score > found.score) found = trial;
  }
  if (found.parameters != current_) change_ = found.parameters;
  result_ = found;
}

std::optional<Parameters> Autotuner::take_change() {
  if (change_) current_ = *change_;
  return std::exchange(change_, std::nullopt);
}

void Autotuner::changed(TimePoint now) {
  // A sample must not mix scores of two sets of parameters.
  scores_.clear();
  seen_.clear();
  scored_ = 0;
  begin_score(now);
}

}  // namespace hora::collectives
