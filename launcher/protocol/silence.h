// SPDX-License-Identifier: Apache-2.0
// How long the other end of a stream has been silent, as far as this end can tell.  [pure]
#pragma once

#include <algorithm>
#include <chrono>

#include "rendezvous/base/time.h"

namespace hora::launcher {

class Silence {
 public:
  using TimePoint = Clock::time_point;
  using Duration = TimePoint::duration;

  explicit Silence(TimePoint now) : heard_(now) {}

  void heard(TimePoint now) {
    heard_ = now;
    excused_ = Duration::zero();
  }
  // A look that was due at `due`, of those that come every `pause`, is made `now`. Who comes late
  // by more than a pause was stopped, starved, or slept with the whole machine: then the other may
  // have been, too, and what it has sent may be on its way still.
  void look(TimePoint due, TimePoint now, Duration pause) {
    if (now - due > pause) excused_ = std::min(excused_ + (now - due), now - heard_);
  }
  // Without the time in which nobody listened.
  Duration length(TimePoint now) const { return now - heard_ - excused_; }
  TimePoint last_heard() const { return heard_; }

 private:
  TimePoint heard_;
  Duration excused_{};
};

}  // namespace hora::launcher
