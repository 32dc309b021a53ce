// SPDX-License-Identifier: Apache-2.0
// Which host gets a part of the bundle, or a file, from which source: a few from the launcher, the
// others from those.  [pure]
//
//   unknown --want()--> waiting --> sent by the launcher ---------> holds it, serves others
//                          ^  \--> fetches from hosts --ready()--/
//                          |            | failed(): from others, then the launcher sends it
//
// Hosts come and go at any time, so there is no fixed tree: a host that waits
// takes a source that is free, and becomes one. The number of sources at least doubles with each
// round.
//
// With sharing, the launcher sends a delivery to at most log2(hosts) hosts, and to those that
// have no other source. When several fail in a row, the hosts cannot reach each other: it sends to
// all.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace hora::launcher {

// Whether hosts pass on what they have: when there are many, never, always.
enum class Sharing { kAuto, kNever, kAlways };
// With fewer hosts, the launcher's own sending takes less time than a second hop.
inline constexpr int kLeastSharingHosts = 9;

class SharePlan {
 public:
  struct Step {
    int host = 0;
    std::vector<int> sources;  // to try, in this order; empty: the launcher sends it
    friend bool operator==(const Step&, const Step&) = default;
  };
  using Steps = std::vector<Step>;

  explicit SharePlan(Sharing sharing) : sharing_(sharing) {}

  // It lacks the delivery; `hosts` is how many the job has now. Once for each host.
  Steps want(int host, int hosts);
  // It has the delivery, from any source.
  Steps ready(int host, bool serves);
  // It could not fetch it from its sources: the first step is that it tries others, or, the second
  // time, that the launcher sends it.
  Steps failed(int host);
  // This source did not work for one host.
  void refuse(int source);
  // It is gone.
  Steps lost(int host);
  // The waiting ones have waited for too long.
  Steps give_up();

  // No host serves any more.
  void forget();

  // Whether hosts are to keep and serve what they get. Otherwise the launcher sends to all.
  bool shares() const { return shares_ && !given_up_; }
  bool any_waits() const { return !waiting_.empty(); }
  // Whether all that want it have it.
  bool is_settled() const { return waiting_.empty() && fetching_ == 0 && sending_ == 0; }
  int sends() const { return sends_; }

 private:
  enum class State { kWaiting, kSending, kFetching, kServing, kDone };
  struct Member {
    State state = State::kWaiting;
    std::vector<int> sources;  // while it fetches; the first one counts as its source
    std::vector<int> tried;    // those of its first fetch, if that has failed
    int peers = 0;             // that fetch from it
    int refusals = 0;
    int load() const { return peers + refusals; }
  };

  Steps next(Steps steps = {});  // after these
  Step send(int host);
  std::vector<int> sources(const std::vector<int>& but = {}) const;
  void begin_fetch(int host, std::vector<int> sources);
  void stop(int host, Member& member);
  void end_fetch(Member& member);
  void set_load(int source, int peers, int refusals);
  void stop_serving(int host, const Member& member);
  bool more_will_serve() const { return sending_ > 0 || fetching_ > 0; }

  Sharing sharing_;
  bool shares_ = false;
  int hosts_ = 0;
  int sends_ = 0;
  int sending_ = 0;
  int fetching_ = 0;
  int failures_ = 0;  // in a row
  bool given_up_ = false;
  std::map<int, Member> members_;
  std::set<std::pair<int, int>> serving_;  // load and host: the least busy come first
  std::deque<int> waiting_;
};

}  // namespace hora::launcher
