// SPDX-License-Identifier: Apache-2.0
// The fast path of ranks that share memory: each rank sees for itself when all have posted the same
// number, reads the others' tensors and computes the result.
#pragma once

#include <atomic>
#include <functional>

#include "collectives/control/fast_path.h"

namespace hora::collectives {

class ShmFastPath final : public FastPath {
 public:
  // The size in bytes of the shared memory, which starts zeroed. The layout is the same on every
  // rank.
  static std::size_t memory_bytes(int size);
  // The largest tensor, in bytes.
  static std::size_t room(int size);

  // `memory` must outlive this object. `ring` wakes a rank that sleeps. `collector` is the only
  // rank that acts when all have posted, and is rung each time; -1: every rank acts, and is rung if
  // it rests. `cores`: the host has a core for each rank, as this one sees it.
  void attach(void* memory, int rank, int size, bool cores, std::function<void(int)> ring,
              int collector = -1);

  int size() const override { return size_; }
  std::size_t room() const override { return room_; }
  char* own_place(std::size_t bytes) override;
  char* place_of(int rank, std::size_t bytes) const override { return place(rank, turn_, bytes); }
  bool takes_two_turns(std::size_t bytes) const override;
  char* own_last_place(std::size_t bytes) const override { return place(rank_, turn_ - 1, bytes); }

  void post(std::uint64_t number) override;
  bool posted() const override { return posted_; }
  bool decided() override;
  bool has_posted(int rank) const override;
  std::uint64_t common() const override;
  void next() override;

  void listen(bool listening) override;
  bool listening() const { return listening_; }
  // Whether this rank sleeps until the turn that it has posted in is decided. A fence and another
  // look have to follow.
  void rest(bool resting);
  bool resting() const { return resting_; }
  bool called_upon() override;
  // Asks the ranks that have not posted yet to post.
  void call_upon_others();
  // Wakes the ranks that listen.
  void ring_listeners();

  bool has_work() override { return attentive_ && (posted_ ? decided() : called_upon()); }
  void set_attentive(bool attentive) override { attentive_ = attentive; }

  std::uint64_t turn() const { return turn_; }

 private:
  struct Line;
  struct Slot;

  Line& line(int rank) const;
  Slot& slot(int rank, std::uint64_t turn) const;
  char* place(int rank, std::uint64_t turn, std::size_t bytes) const;
  void send_bells();

  char* memory_ = nullptr;
  int rank_ = 0;
  int size_ = 1;
  int collector_ = -1;
  std::size_t room_ = 0;
  std::function<void(int)> ring_;
  std::uint64_t turn_ = 1;
  bool posted_ = false;
  int seen_ = 0;                // all ranks below this one have posted in this turn
  std::size_t last_bytes_ = 0;  // size of the latest tensor; 0 when it fitted into the slot
  bool listening_ = false;
  bool resting_ = false;
  bool attentive_ = false;
};

}  // namespace hora::collectives
