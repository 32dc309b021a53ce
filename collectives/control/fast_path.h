// How ranks run a small operation that they have agreed on before, without rank 0: each posts its
// tensor beside the number by which the operation is known; when all have posted the same number,
// each has what it needs for the result.
//
// It goes in turns. A turn is decided when every rank has posted; a rank that has nothing to bring
// posts kNothing when somebody needs to know. When not all have posted the same number, each takes
// its operation to rank 0 instead. So what a turn decides is the same on all ranks.
//
// Used by the thread that drives the runtime. Nothing here waits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hora::collectives {

class LeaderFastPath;

class FastPath {
 public:
  static constexpr std::uint64_t kNothing = 0;

  virtual ~FastPath() = default;

  // Ranks that take part: all of the world.
  virtual int size() const = 0;
  // The largest tensor in bytes.
  virtual std::size_t room() const = 0;
  // Where this rank's tensor of so many bytes is to be written before it is posted.
  virtual char* own_place(std::size_t bytes) = 0;
  // A rank's tensor of a turn that all ranks here have posted in, until next(): of the rank with
  // that place among those which share this memory.
  virtual const char* place_of(int place, std::size_t bytes) const = 0;

  // Once in a turn.
  virtual void post(std::uint64_t number) = 0;
  virtual bool posted() const = 0;
  virtual bool decided() = 0;
  virtual bool has_posted(int rank) const = 0;  // in this turn, as far as is known here
  // Of a turn that is decided: what all have posted; kNothing when they differ.
  virtual std::uint64_t common() const = 0;
  // This rank is done with what the others have posted.
  virtual void next() = 0;

  // This rank has operations under way that rank 0 is asked for: the others may not wait for it
  // here.
  virtual void listen(bool listening) = 0;
  // The others are waiting, and this rank is to post at least kNothing.
  virtual bool called_upon() = 0;

  // There is something to do. Never when not attentive, as it is at first.
  virtual bool has_work() = 0;
  virtual void set_attentive(bool attentive) = 0;

  // Null where all ranks share memory.
  virtual LeaderFastPath* between_hosts() { return nullptr; }
};

}  // namespace hora::collectives
