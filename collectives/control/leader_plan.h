// SPDX-License-Identifier: Apache-2.0
// Which rank leads each host, and what the leaders exchange so that all know what each of them
// brought.  [pure]
//
// Recursive doubling: with every step a leader covers twice as many hosts. The hosts beyond the
// largest power of two lend their share to a partner and get the result back. The lower host's
// operand is always on the left, as in PointToPoint, so the resulting bits are the same.
#pragma once

#include <cstdint>
#include <vector>

namespace hora::collectives {

//
// A large operand is halved instead where no host lends: with every step, a leader keeps the half
// that its bit of that distance says, and gives the other one. That leaves it with its share of the
// result. The same steps in the reverse order give the shares back (returning_steps).
struct LeaderStep {
  int peer = 0;  // a host
  bool sends = false;
  bool receives = false;
  bool result = false;     // the received bytes are the result: do not combine them
  std::vector<int> gives;  // the hosts whose share this step sends, ascending
  std::vector<int> gets;   // and receives
};

struct LeaderPlan {
  std::vector<std::vector<std::int32_t>> members;  // ranks by host, ascending; the first leads
  int host = 0;                                    // of this rank
  int place = 0;                                   // of this rank among its host's
  std::vector<LeaderStep> steps;                   // what this host's leader does, in order
  std::vector<int> peers;                          // the hosts in `steps`, ascending

  bool leads() const { return place == 0; }
  int hosts() const { return static_cast<int>(members.size()); }
  bool lends() const;  // whether there are hosts beyond the largest power of two
  int most_members() const;
  const std::vector<std::int32_t>& here() const { return members[static_cast<std::size_t>(host)]; }
  std::int32_t leader_of(int of) const { return members[static_cast<std::size_t>(of)].front(); }
};

// `hosts` holds each rank's host index, counted from 0 in the order of the ranks.
LeaderPlan plan_leaders(const std::vector<std::int32_t>& hosts, int rank);

// The steps of the leader of `host` among `hosts` leaders.
std::vector<LeaderStep> leader_steps(int host, int hosts);
// For shares, after the other steps; hosts are a power of two.
std::vector<LeaderStep> returning_steps(std::vector<LeaderStep> steps);
// The hosts with which that leader exchanges messages, ascending.
std::vector<int> leader_peers(int host, int hosts);

}  // namespace hora::collectives
