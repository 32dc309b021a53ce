// SPDX-License-Identifier: Apache-2.0
// Runs a small operation that all ranks have agreed on before, without asking rank 0. Each rank
// posts its tensor together with the number that identifies the operation. When all ranks have
// posted the same number, each rank has what it needs to compute the result.
//
// The fast path works in turns. A turn is decided when every rank has posted; a rank that has
// nothing to contribute posts kNothing when another rank waits. When the ranks post different
// numbers, each rank takes its operation to rank 0 instead. A decision is therefore the same on all
// ranks.
//
// A larger reduction may take two turns, so that no rank reads all tensors whole: when all have
// posted it, each rank reduces a share of it, writes the result to the places of the others, from
// where it has read theirs, and posts the same number in the next turn. So each cache line of a
// place goes to one other core and comes back, and no two cores ever have it. From the first
// decision on all ranks are bound to the second turn, so nothing else can be posted in it.
//
// Only the thread that drives the runtime uses this class. No function blocks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hora::collectives {

class LeaderFastPath;

class FastPath {
 public:
  static constexpr std::uint64_t kNothing = 0;

  virtual ~FastPath() = default;

  // The number of ranks that take part: the whole world.
  virtual int size() const = 0;
  // The largest tensor, in bytes.
  virtual std::size_t room() const = 0;
  // The place to which the caller writes this rank's tensor of `bytes` bytes before it posts. The
  // fast path owns the memory.
  virtual char* own_place(std::size_t bytes) = 0;
  // The tensor of the rank at index `place` among those that share this memory. Valid from the
  // moment when all these ranks have posted until next(). Only in an operation of two turns the
  // others write there: each its share, in the first.
  virtual char* place_of(int place, std::size_t bytes) const = 0;
  // Whether a reduction of this size takes two turns: the same on all ranks.
  virtual bool takes_two_turns(std::size_t /*bytes*/) const { return false; }
  // In the second of two turns, once it is decided: this rank's place in the first.
  virtual char* own_last_place(std::size_t /*bytes*/) const { return nullptr; }

  // Call this once per turn.
  virtual void post(std::uint64_t number) = 0;
  virtual bool posted() const = 0;
  virtual bool decided() = 0;
  virtual bool has_posted(int rank) const = 0;  // in this turn, as far as this rank knows
  // The number that all ranks have posted in a decided turn; kNothing when the numbers differ.
  virtual std::uint64_t common() const = 0;
  // Ends the turn: this rank no longer needs what the others have posted.
  virtual void next() = 0;

  // Announces that this rank has operations in negotiation with rank 0, so the others must not wait
  // for it in the fast path: they wake it, and it posts kNothing.
  virtual void listen(bool listening) = 0;
  // True when other ranks wait and this rank has to post, if only kNothing.
  virtual bool called_upon() = 0;

  // True when this rank has something to do here. Always false while it is not attentive, which is
  // the initial state.
  virtual bool has_work() = 0;
  virtual void set_attentive(bool attentive) = 0;

  // Null where all ranks share memory.
  virtual LeaderFastPath* between_hosts() { return nullptr; }
};

}  // namespace hora::collectives
