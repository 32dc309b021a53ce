// The table of who has asked for what. One rank of the world keeps it for all; the verdicts that it
// gives are executed by every rank of the set in the order given.
//
// Pure: messages in, verdicts out. Time comes in as an argument.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "collectives/negotiation/request.h"

namespace hora::collectives {

class Coordinator {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit Coordinator(int world_size);

  // Static process sets get ids 1, 2, ... in the order of the calls.
  std::int32_t add_set(std::vector<std::int32_t> ranks);
  // Null when there is no such set.
  const std::vector<std::int32_t>* set_ranks(std::int32_t id) const;

  // Records what `rank` (global) asks for.
  void add(int rank, Request request, TimePoint now);

  // What has become ready since the last call, larger priorities first, otherwise in the order in
  // which it became ready.
  std::vector<Verdict> take_ready();

  // An entry that some ranks have asked for and others not, since `since`.
  struct Waiting {
    Action action;
    std::int32_t process_set;
    std::string name;
    TimePoint since;
    std::vector<std::int32_t> missing;  // global ranks
  };
  std::vector<Waiting> waiting() const;  // oldest first
  bool anything_waiting() const;

  // What a rank asked for most recently; null when it never did.
  struct Asked {
    Action action = Action::kBarrier;
    std::string name;
    TimePoint when;
  };
  const Asked* last_asked(int rank) const;

 private:
  struct Entry {
    Request first;  // of the rank that came first
    int first_rank = -1;
    TimePoint since;
    std::uint64_t order = 0;
    int arrived = 0;
    std::vector<char> has_arrived;                  // by set index
    std::vector<std::int64_t> rows;                 // allgather: dim 0 by set index
    std::vector<std::vector<std::int64_t>> splits;  // alltoall, by set index
    int last_rank = -1;                             // global rank that came last
    std::string mismatch;                           // the first one found
    bool torn = false;                              // the ranks put it in different groups
    std::string other_group;                        // the other one, if it was not "alone"
  };
  struct Group {
    int expected = 0;                // members
    std::vector<std::string> ready;  // names of members that every rank has asked for
  };
  struct Set {
    std::vector<std::int32_t> ranks;
    std::vector<int> index_of;  // global rank -> set index, -1
    std::unordered_map<std::string, Entry> entries;
    std::unordered_map<std::string, Group> groups;
    std::vector<char> joined;  // by set index
    int joined_count = 0;
    int last_joined = -1;
    std::vector<std::string> ready;  // keys of entries, in the order in which they became ready
    // Groups of which one member is complete but not all ranks agree on the group, and why.
    std::map<std::string, std::string> broken_groups;
  };

  Entry& entry_for(Set& set, int rank, const Request& request, TimePoint now);
  void arrive(Set& set, const std::string& key);
  void ready_alone_or_in_group(Set& set, const std::string& key);
  void end_broken_groups(Set& set);
  void join(Set& set, std::int32_t id, int rank);
  Verdict conclude(Set& set, std::int32_t id, Entry entry);
  void conclude_world_action(Verdict& verdict);
  bool set_in_use(const std::vector<std::int32_t>& ranks) const;

  int world_size_;
  std::map<std::int32_t, Set> sets_;
  std::int32_t next_set_ = 1;
  std::uint64_t next_order_ = 0;
  std::vector<Verdict> immediate_;  // verdicts that need no counting
  std::vector<Asked> last_asked_;   // by rank; no name: nothing yet
};

// Why `theirs` cannot be combined with `mine`; empty when it can. Names both ranks and both values.
std::string describe_mismatch(int my_rank, const Request& mine, int their_rank,
                              const Request& theirs);

}  // namespace hora::collectives
