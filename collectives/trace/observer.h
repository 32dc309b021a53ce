// SPDX-License-Identifier: Apache-2.0
// The engine's events for a recorder: the timeline and the flight recorder. All calls come from the
// thread that drives the engine, in the order in which things happen; none blocks. The observer
// that does nothing is this class itself.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "collectives/backend.h"
#include "collectives/negotiation/request.h"
#include "rendezvous/base/time.h"

namespace hora::collectives {

class Observer {
 public:
  virtual ~Observer() = default;

  // Whether it wants every operation. Otherwise, of many that come at once, the last ones that are
  // taken are enough. Any thread.
  static constexpr std::size_t kLastTaken = 8;
  virtual bool wants_all() const noexcept { return false; }

  // This rank's operation has left the queue; rank 0 gets it next.
  virtual void taken(const Request&, Clock::time_point /*submitted*/) noexcept {}
  // On rank 0: that rank has asked for it, in words or by a bit of the response cache.
  virtual void arrived(int /*rank*/, const Request&) noexcept {}
  // A round of responses has come; the steps that they make are run next.
  virtual void agreed(std::span<const Response* const>, Clock::time_point /*now*/) noexcept {}
  // One step: the operations that run together. Its slot is the first, from 0, that no other
  // current step has; its activities may be reported between the two calls.
  virtual void step_begins(int /*place*/, std::span<const Response* const>,
                           Clock::time_point /*now*/) noexcept {}
  virtual void step_ends(int /*place*/, bool /*good*/, Clock::time_point /*now*/) noexcept {}
  // Instead of all of the above: this rank's operation was asked for, agreed on and run within
  // moments, about now. Only if all of it is not wanted in detail.
  virtual void ran_at_once(const Request&, Clock::time_point /*now*/) noexcept {}
  // All leave, because another rank has asked first.
  virtual void others_left() noexcept {}
  // No operation will run any more, for this reason.
  virtual void world_ended(std::string_view /*why*/) noexcept {}

  // Null when no recorder wants a step's activities.
  virtual Activities* activities(int /*place*/) noexcept { return nullptr; }
};

}  // namespace hora::collectives
