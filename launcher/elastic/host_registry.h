// SPDX-License-Identifier: Apache-2.0
// The hosts that an elastic job knows: which are there, with how many slots, and which have failed
// and may not be used now or ever.  [pure]
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/plan/host_list.h"
#include "rendezvous/base/time.h"

namespace hora::launcher::elastic {

// How long a host that failed is left alone: lo * 2^n + up to lo more, n counting its failures from
// 1, never outside [lo, hi].
struct CooldownRange {
  std::chrono::seconds lo{1};
  std::chrono::seconds hi{3600};
};

class HostRegistry {
 public:
  using TimePoint = Clock::time_point;

  // `random` answers a number from 0 up to 1. Without a range a host that failed never returns.
  HostRegistry(std::optional<CooldownRange> cooldown, std::function<double()> random);

  // The hosts as they are now, slots set. Whoever was listed before keeps its place; those that
  // come get theirs behind, in the order given.
  void list(const std::vector<Host>& hosts);

  // Hosts that are not listed have no past, should they come back.
  void forget_unlisted();

  // The host failed. While it is left alone already, nothing changes.
  void blacklist(const std::string& name, TimePoint now);
  bool is_blacklisted(const std::string& name, TimePoint now) const;
  // The next moment at which a listed host may be used again.
  std::optional<TimePoint> next_return(TimePoint now) const;

  // Listed, with slots, not blacklisted; in the order in which they were first seen.
  std::vector<Host> available(TimePoint now) const;
  // Listed hosts that may be used again some time, although not now.
  bool may_return(TimePoint now) const { return next_return(now).has_value(); }

 private:
  struct Entry {
    Host host;
    bool listed = false;
    int failures = 0;
    std::optional<TimePoint> barred_until;  // TimePoint::max(): for good
  };

  Entry* find(const std::string& name);
  const Entry* find(const std::string& name) const;

  std::optional<CooldownRange> cooldown_;
  std::function<double()> random_;
  std::vector<Entry> entries_;  // never removed: a host that returns has its place and its past
};

}  // namespace hora::launcher::elastic
