// SPDX-License-Identifier: Apache-2.0
// The table of which ranks have asked for what. One rank of the world keeps it for all; every rank
// of a set executes the responses in the order in which this table gives them.
//
// Pure: messages in, responses out. Time comes in as an argument. One thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collectives/negotiation/probe_table.h"
#include "collectives/negotiation/request.h"
#include "collectives/negotiation/sequence.h"
#include "rendezvous/base/time.h"

namespace hora::collectives {

class Coordinator {
 public:
  using TimePoint = Clock::time_point;

  explicit Coordinator(int world_size);

  // Static process sets get ids 1, 2, ... in the order of the calls.
  std::int32_t add_set(std::vector<std::int32_t> ranks);

  // Records a request of `rank` (global).
  void add(int rank, Request request, TimePoint now);
  // Records a request by the number under which `known` was agreed on before. While all ranks ask
  // by number, the table only counts them: they cannot disagree. False when the rank had no part in
  // `known`. `known` must stay valid until spell_out().
  bool add_known(int rank, std::uint64_t number, const Response& known, TimePoint now);
  // As add_known() for each of these, at once. False: it is to be done so. While all ranks ask for
  // this alone, the sequence is counted as a whole.
  bool add_together(int rank, const SequencePtr& sequence, TimePoint now);
  // Makes the number meaningless, or prepares for a request of the same name in full, which the
  // caller adds next: ranks that have asked by the number count as having asked in full.
  void spell_out(std::int32_t set, std::uint64_t number);

  // An operation that has become ready, and the number by which all ranks asked for it; 0: not all
  // by one number.
  struct Ready {
    std::uint64_t number = 0;
    const Response* known = nullptr;  // the number's response
    std::unique_ptr<Response> made;   // without a number
    std::uint64_t order = 0;

    const Response& response() const { return known != nullptr ? *known : *made; }
  };
  // The operations that have become ready since the last call: larger priorities first, otherwise
  // in the order of readiness.
  std::vector<Ready> take_ready();

  // The sequence that has become ready as a whole, in place of take_ready(). Null where there is
  // none, or something else as well.
  SequencePtr take_ready_together();

  // Until when ready responses may wait for others, to run in one step; nothing: take them now.
  // Only reductions of less than `enough_bytes` together wait, no longer than `at_most`, and only
  // while the table holds something else.
  std::optional<TimePoint> wait_for_more(TimePoint now, std::chrono::microseconds at_most,
                                         std::int64_t enough_bytes);

  // A request that some ranks have made and others not, since `since`.
  struct Waiting {
    Action action;
    std::int32_t process_set;
    std::string name;
    TimePoint since;
    std::vector<std::int32_t> missing;  // global ranks
  };
  std::vector<Waiting> waiting() const;  // oldest first
  bool anything_waiting() const;

  // A rank's most recent request; null when it has made none.
  struct LastRequest {
    Action action = Action::kBarrier;
    std::string name;
    TimePoint when;

    void note(const Request& request, TimePoint now);
  };
  const LastRequest* last_asked(int rank) const;
  // Records that all ranks have asked for it and have run it without this table (the fast path).
  void asked_by_all(const Request& request, TimePoint when);

 private:
  struct Entry {
    Request first;  // the first rank's request
    int first_rank = -1;
    TimePoint since;
    std::uint64_t order = 0;
    int arrived = 0;
    std::vector<char> has_arrived;                  // by set index
    std::vector<std::int64_t> rows;                 // allgather: dim 0 by set index
    std::vector<std::vector<std::int64_t>> splits;  // alltoall, by set index
    int last_rank = -1;                             // the global rank that asked last
    std::vector<std::int32_t> joined;  // the ranks that had joined instead when it became ready
    std::string mismatch;              // the first mismatch found; empty: none
    bool torn = false;                 // the ranks disagree on its group
    std::string other_group;           // the other group, unless it was "alone"
    bool torn_set = false;             // the ranks disagree on its tensors
    Members other_set;                 // another prepared set than the first rank's; perhaps none
  };
  // Which ranks have asked for something by its number.
  struct Count {
    std::uint64_t number = 0;
    const Response* known = nullptr;
    TimePoint since;
    std::uint64_t order = 0;  // 0: not ready
    int arrived = 0;
    std::uint64_t first_64 = 0;         // a bit for each rank of set index 0 to 63
    std::vector<std::uint64_t> beyond;  // and for those from 64 on

    bool arrive(std::size_t index);
    bool has(std::size_t index) const;
  };
  // A sequence that some ranks have asked for, or all, and nothing else; null: none.
  struct Together {
    SequencePtr sequence;
    Count count;  // of the ranks; its number means nothing
  };
  struct Group {
    int expected = 0;                // members
    std::vector<std::string> ready;  // members that every rank has asked for
  };
  struct Set {
    std::vector<std::int32_t> ranks;
    std::vector<int> index_of;  // global rank -> set index, -1
    std::unordered_map<std::string, Entry> entries;
    ProbeTable<Count> counts;  // by number; none of a name in entries, none while a rank has joined
    Together together;         // entries and counts are empty as long as there is one
    std::vector<std::uint64_t> ready_counts;  // numbers, in the order of readiness
    std::unordered_map<std::string, Group> groups;
    std::vector<char> joined;  // by set index
    int joined_count = 0;
    int last_joined = -1;
    std::vector<std::string> ready;  // keys of entries, in the order in which they became ready
    // Groups with a complete member on whose group the ranks disagree, and the mismatch.
    std::map<std::string, std::string> broken_groups;
    // Prepared sets on which the ranks disagree, and the mismatch.
    std::vector<std::pair<Members, std::string>> broken_sets;
  };

  static auto is_number(std::uint64_t number) {
    return [number](const Count& count) { return count.number == number; };
  }
  static Count* find_count(ProbeTable<Count>& counts, std::uint64_t number) {
    return counts.find(number, is_number(number));
  }
  static const Count* find_count(const ProbeTable<Count>& counts, std::uint64_t number) {
    return counts.find(number, is_number(number));
  }
  Entry& entry_for(Set& set, int rank, const Request& request, TimePoint now);
  void arrive(Set& set, const std::string& key);
  void ready_alone_or_in_group(Set& set, const std::string& key);
  void end_broken_groups(Set& set);
  void end_broken_sets(Set& set);
  void end_waiting(Set& set, const std::string& key, const std::string& mismatch);
  void join(Set& set, std::int32_t id, int rank);
  void add_in_full(Set& set, int rank, Request request, TimePoint now);
  bool count_known(Set& set, std::size_t index, std::uint64_t number, const Response& known,
                   TimePoint now);
  void take_apart(Set& set);
  void spell_out(Set& set, const Count& count);
  void spell_all_out(Set& set);
  Response conclude(std::int32_t id, Entry entry);
  void conclude_world_action(Response& response);
  std::optional<std::int32_t> find_set(const std::vector<std::int32_t>& ranks) const;

  int world_size_;
  std::map<std::int32_t, Set> sets_;
  std::int32_t next_set_ = 1;
  std::uint64_t next_order_ = 0;
  std::optional<TimePoint> waiting_since_;  // when wait_for_more() first asked to wait
  std::vector<Response> immediate_;         // responses that need no counting
  std::vector<LastRequest> last_asked_;     // by rank; an empty name: nothing yet
  LastRequest last_of_all_;
};

// Why `theirs` cannot be combined with `mine`; empty when it can. The text names both ranks and
// values.
std::string describe_mismatch(int my_rank, const Request& mine, int their_rank,
                              const Request& theirs);

}  // namespace hora::collectives
