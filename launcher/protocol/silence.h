// SPDX-License-Identifier: Apache-2.0
// How long the other end of a stream has been silent, and whether that means that it is lost. Both
// the launcher and the agents judge each other by this.  [pure]
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "rendezvous/base/time.h"

namespace hora::launcher {

// kAtWork: it lives, and is not stopped (SIGSTOP, a debugger). If it is silent it gets no processor
// time, or waits for a disk or for memory.
enum class Standing { kAtWork, kStopped, kGone };

// The state of a process on this machine.
struct Pulse {
  Standing standing = Standing::kAtWork;
  // Since its start it has been ready to run without a processor for this long, where that is
  // known.
  std::optional<std::chrono::nanoseconds> waited{};
};

// The facts about an end that is silent.
struct SilenceEvidence {
  using Duration = Clock::duration;

  Duration silence{};                  // less the time in which this end did not run itself
  Duration late{};                     // this end did not run for this long when it should have
  std::optional<Standing> standing{};  // of its process, if that is on this machine
  Duration standing_for{};             // as seen at each look during this time
  std::optional<Duration> waited{};    // for a processor, while it was silent
};

// kSlow: it is silent for longer than the lease, but it exists.
enum class Verdict { kPresent, kSlow, kLost };

// On another machine, silence is all there is to judge by. On this machine, the end of a process is
// the end of its stream, so silence alone proves nothing. A stopped process may never continue: it
// is lost when it has been stopped for longer than the lease. One that is gone is lost at the
// second look: its last words, or the end of the stream, may still be on their way at the first.
Verdict judge(const SilenceEvidence& evidence, Clock::duration lease);

// "no sign of life for 12 s: its agent (process 7) has been stopped for 11 s (SIGSTOP, a
// debugger)". `process`: what the other end is called, if it is on this machine.
std::string describe(const SilenceEvidence& evidence, const std::string& process);

class Silence {
 public:
  using TimePoint = Clock::time_point;
  using Duration = TimePoint::duration;

  explicit Silence(TimePoint now) : received_(now), looked_(now) {}

  void received(TimePoint now);
  // A look that was due at `due`, of those that come every `pause`, is made `now`. One that is late
  // by more than a pause was stopped, starved, or slept with the whole machine: then the other end
  // may have been, too, and what it has sent may still be on its way.
  // `pulse`: of the process at the other end, if that is on this machine.
  void look(TimePoint due, TimePoint now, Duration pause, const std::optional<Pulse>& pulse = {});
  // Without the time in which this end did not listen.
  Duration length(TimePoint now) const { return now - received_ - excused_; }
  TimePoint last_received() const { return received_; }
  SilenceEvidence evidence(TimePoint now) const;
  // Whether it is so for the first time since the other end last sent anything: for one warning.
  bool is_first_mention() { return !std::exchange(mentioned_, true); }

 private:
  void take(const Pulse& pulse, Duration since_last_look);

  TimePoint received_;
  Duration excused_{};
  Duration late_{};
  TimePoint looked_;
  bool received_since_look_ = true;
  bool mentioned_ = false;
  std::optional<Pulse> pulse_;
  Duration standing_for_{};
  std::optional<std::chrono::nanoseconds> waited_before_;  // when it last sent anything
};

}  // namespace hora::launcher
