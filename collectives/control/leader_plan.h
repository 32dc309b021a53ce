// Which rank speaks for each host, and what the leaders pass to each other so that all know what
// each brought.  [pure]
//
// Recursive doubling: with every step a leader knows of twice as many hosts. The hosts beyond the
// largest power of two lend what they bring to a partner and get the result back. Two operands are
// always combined with the lower host's on the left, as PointToPoint does: the bits are the same.
#pragma once

#include <cstdint>
#include <vector>

namespace hora::collectives {

struct LeaderStep {
  int peer = 0;  // a host
  bool sends = false;
  bool receives = false;
  bool result = false;     // what is received is the result, not to be combined
  std::vector<int> gives;  // the hosts whose part is sent, ascending
  std::vector<int> gets;   // and received
};

struct LeaderPlan {
  std::vector<std::vector<std::int32_t>> members;  // ranks by host, ascending; the first leads
  int host = 0;                                    // of this rank
  int place = 0;                                   // of this rank among its host's
  std::vector<LeaderStep> steps;                   // of this host's leader
  std::vector<int> peers;                          // the hosts in `steps`, ascending

  bool leads() const { return place == 0; }
  int hosts() const { return static_cast<int>(members.size()); }
  int most_members() const;
  const std::vector<std::int32_t>& here() const { return members[static_cast<std::size_t>(host)]; }
  std::int32_t leader_of(int of) const { return members[static_cast<std::size_t>(of)].front(); }
};

// `hosts`: the number of each rank's host, counted from 0 in the order of the ranks.
LeaderPlan plan_leaders(const std::vector<std::int32_t>& hosts, int rank);

// What one of `hosts` leaders does.
std::vector<LeaderStep> leader_steps(int host, int hosts);
// The hosts that it does it with, ascending.
std::vector<int> leader_peers(int host, int hosts);

}  // namespace hora::collectives
