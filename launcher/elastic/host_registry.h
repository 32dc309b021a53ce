// SPDX-License-Identifier: Apache-2.0
// The hosts of an elastic job: those that a discovery script printed, those that have failed, and
// those that ranks cannot reach.  [pure]
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/plan/host_list.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"

namespace hora::launcher::elastic {

// What a discovery script printed, as hosts.
// Lines as of a hostfile ("name slots=4", "name:4", "name"), or lists as -H takes them; blank lines
// and # comments are left out. No lines: no hosts at the moment, which is not an error.

// Each second all of them are compared with those that are known, while heartbeats wait.
inline constexpr std::size_t kMostDiscovered = 4'096;

// Each host once, in the order of the lines, its slots set (`default_slots` where the line has
// none). A line that comes twice counts once; a host with two numbers of slots is an error, and so
// are more than kMostDiscovered hosts. Errors name the line.
Result<std::vector<Host>> parse_discovered_hosts(std::string_view output, int default_slots);

// The hosts that an elastic job knows: which are there, with how many slots, and which have failed
// and may not be used now or ever.

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

  // The current hosts, slots set. Hosts that were listed before keep their index; new ones get the
  // next ones, in the order given.
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

// Which host is to be left out when ranks of an elastic job cannot connect to each other, epoch
// after epoch: a host that is cut off for good would otherwise keep the others from meeting for
// ever.

class UnreachedHosts {
 public:
  // A host of the epoch that has ended, in the order of the ranks.
  struct Member {
    std::string name;
    bool knows_state = false;  // of the training
  };
  struct LeftOut {
    std::size_t host = 0;              // its place among the members
    std::vector<std::string> missing;  // those that it has no connection with
  };

  // In the current epoch, these two had no connection.
  void note(std::size_t one, std::size_t other) {
    if (one != other) pairs_.insert(std::minmax(one, other));
  }

  // The epoch is over. Answers the hosts that have spoilt too many.
  std::vector<LeftOut> end_epoch(const std::vector<Member>& members);

  // Epochs in a row: leaves time to repair a network.
  static constexpr int kMostEpochs = 3;

 private:
  std::set<std::pair<std::size_t, std::size_t>> pairs_;  // the lower place first
  std::map<std::string, int> spoilt_;                    // epochs, by host
};

}  // namespace hora::launcher::elastic
