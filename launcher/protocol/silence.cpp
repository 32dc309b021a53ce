// SPDX-License-Identifier: Apache-2.0
// Two lengths of time are kept: since the other end last sent anything, and for how long its
// process has been seen in one state. Both leave out the time in which this process did not run,
// for the same reason: what pauses one process of a machine (a hypervisor, a freezer, a scheduler)
// pauses the others as well, and it is unknown which of them goes on first.
#include "launcher/protocol/silence.h"

#include <algorithm>

namespace hora::launcher {

namespace {

std::string seconds_text(Clock::duration time) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) + " s";
}

}  // namespace

Verdict judge(const SilenceEvidence& evidence, Clock::duration lease) {
  if (evidence.silence <= lease) return Verdict::kPresent;
  if (!evidence.standing) return Verdict::kLost;
  bool is_lost = false;
  switch (*evidence.standing) {
    case Standing::kAtWork:
      break;
    case Standing::kStopped:
      is_lost = evidence.standing_for > lease;
      break;
    case Standing::kGone:
      is_lost = evidence.standing_for > Clock::duration::zero();
      break;
  }
  return is_lost ? Verdict::kLost : Verdict::kSlow;
}

std::string describe(const SilenceEvidence& evidence, const std::string& process) {
  constexpr std::chrono::seconds kWorthNaming{1};
  std::string text = "no sign of life for " + seconds_text(evidence.silence);
  if (evidence.standing == Standing::kStopped) {
    text += ": " + process + " has been stopped for " + seconds_text(evidence.standing_for) +
            " (SIGSTOP, a debugger)";
  } else if (evidence.standing == Standing::kGone) {
    text += ": " + process + " has ended";
  } else if (evidence.standing == Standing::kAtWork) {
    text += ": " + process + " exists";
  }
  if (evidence.waited && *evidence.waited >= kWorthNaming) {
    text += ", and waited for a processor for " + seconds_text(*evidence.waited);
  }
  if (evidence.late >= kWorthNaming) {
    text += "; the process that reports this did not run for " + seconds_text(evidence.late);
  }
  return text;
}

void Silence::received(TimePoint now) {
  received_ = now;
  excused_ = Duration::zero();
  late_ = Duration::zero();
  standing_for_ = Duration::zero();
  received_since_look_ = true;
  mentioned_ = false;
}

void Silence::look(TimePoint due, TimePoint now, Duration pause,
                   const std::optional<Pulse>& pulse) {
  const Duration late = now - due;
  const bool was_away = late > pause;
  if (was_away) excused_ = std::min(excused_ + late, now - received_);
  late_ = std::min(late_ + std::max(late, Duration::zero()), now - received_);
  if (pulse) take(*pulse, was_away ? pause : now - looked_);
  looked_ = now;
  received_since_look_ = false;
}

void Silence::take(const Pulse& pulse, Duration since_last_look) {
  // One that has said something has run meanwhile, whatever it does at both looks.
  const bool is_the_same = pulse_ && pulse_->standing == pulse.standing && !received_since_look_;
  standing_for_ = is_the_same ? standing_for_ + since_last_look : Duration::zero();
  // The kernel counts since the start of the process; only the silence is of interest.
  if (received_since_look_) waited_before_ = pulse.waited;
  pulse_ = pulse;
}

SilenceEvidence Silence::evidence(TimePoint now) const {
  SilenceEvidence found;
  found.silence = length(now);
  found.late = late_;
  if (!pulse_) return found;
  found.standing = pulse_->standing;
  found.standing_for = standing_for_;
  if (pulse_->waited && waited_before_) {
    found.waited = std::chrono::duration_cast<Clock::duration>(*pulse_->waited - *waited_before_);
  }
  return found;
}

}  // namespace hora::launcher
