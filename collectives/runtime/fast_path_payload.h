// SPDX-License-Identifier: Apache-2.0
// What may go through the fast path, and how its tensors get in and out of it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "collectives/control/leader_fast_path.h"
#include "collectives/runtime/operation.h"
#include "collectives/runtime/process_set.h"

namespace hora::collectives {

// Which operations of the world go through the fast path when they are small: those that a backend
// of one host would run, or on several hosts an algorithm that reduces in the same order as the
// leaders do. The same on every rank.
class FastPathTable {
 public:
  FastPathTable() = default;
  // `hosts`: of the set's members.
  FastPathTable(const ProcessSet& set, const std::vector<std::int32_t>& hosts, std::size_t room);

  // `rows`: of an allgather, by rank. Of an alltoall whose rows differ, it is not the same on every
  // rank.
  bool fits(const Operation& operation, const std::vector<std::int64_t>& rows) const;
  // The id of the backend whose place the fast path takes.
  const std::string& backend(const Request& request) const;

 private:
  static constexpr int kActions = 6;
  static int row_of(Action action);

  std::size_t room_ = 0;
  int size_ = 1;
  bool one_host_ = false;
  std::string backends_[kActions];
  bool allowed_[kActions][kDtypeCount] = {};
};

// To where the others find it; before it is posted. `rows`: as for unpack_fast_path().
void pack_fast_path(FastPath& fast_path, const Operation& operation,
                    const std::vector<std::int64_t>& rows, int rank);
// Whether it takes two turns: the same on all ranks that have posted it.
bool takes_two_turns(const FastPath& fast_path, const Operation& operation);
// In the first of them, once it is decided: reduces this rank's share to its own outputs, and to
// where the others find it in the second.
void reduce_share(const FastPath& fast_path, const Operation& operation, int rank);
// In the second, once it is decided: the shares of the others to the outputs.
void unpack_shares(const FastPath& fast_path, const Operation& operation, int rank);
// For an operation of one turn: the result, from the posts of all ranks. `rows`: what each rank
// has in the result of an allgather or alltoall, or gets of a reducescatter. operation.result has
// space for it, where it has one.
void unpack_fast_path(FastPath& fast_path, Operation& operation,
                      const std::vector<std::int64_t>& rows, int rank);

// What a leader passes on for an operation that all of its host have posted, and computes from the
// answers. The result gathers where the whole host finds it.
class FastPathPayload final : public LeaderExchange::Payload {
 public:
  // `shares_from`: bytes from which on a reduction halves with each step, if the number of hosts is
  // a power of two.
  FastPathPayload(LeaderFastPath& fast_path, const Operation& operation,
                  const std::vector<std::int64_t>& rows, std::size_t shares_from);

  void bring() override;
  void finish() override;
  bool in_shares() const override { return in_shares_; }
  void give(const LeaderStep& step, std::string& message) override;
  bool take(const LeaderStep& step, std::string_view bytes) override;

 private:
  struct Block {
    std::size_t begin = 0;
    std::size_t bytes = 0;
  };
  Block block_of(std::int32_t rank) const;             // of an allgather's result
  Block kept(int host, const LeaderStep& step) const;  // of a reduction in shares

  LeaderFastPath& fast_path_;
  const Operation& operation_;
  std::vector<std::size_t> starts_;  // of an allgather: of each rank's block, and their end
  std::size_t bytes_ = 0;
  char* result_;
  bool in_shares_ = false;
  bool have_ = false;  // of a broadcast: the root's tensor is in result_
};

}  // namespace hora::collectives
