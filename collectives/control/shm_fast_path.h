// The fast path of ranks that share memory: whoever sees that all have posted the same number takes
// the others' tensors and computes the result by itself.
#pragma once

#include <atomic>
#include <functional>

#include "collectives/control/fast_path.h"

namespace hora::collectives {

class ShmFastPath final : public FastPath {
 public:
  // Where everything lies in shared memory, zeroed at first; the same on every rank.
  static std::size_t memory_bytes(int size);
  // The largest tensor in bytes.
  static std::size_t room(int size);

  // `ring` wakes a rank that sleeps. `collector`: the rank that alone acts on what all have posted;
  // -1: each does.
  void attach(void* memory, int rank, int size, std::function<void(int)> ring, int collector = -1);

  int size() const override { return size_; }
  std::size_t room() const override { return room_; }
  char* own_place(std::size_t bytes) override;
  const char* place_of(int rank, std::size_t bytes) const override { return place(rank, bytes); }

  void post(std::uint64_t number) override;
  bool posted() const override { return posted_; }
  bool decided() override;
  bool has_posted(int rank) const override;
  std::uint64_t common() const override;
  void next() override;

  void listen(bool listening) override;
  bool listening() const { return listening_; }
  bool called_upon() override;
  // Calls upon the ranks that have not posted yet.
  void call_upon_others();
  // Wakes those who listen.
  void ring_listeners();

  bool has_work() override { return attentive_ && (posted_ ? decided() : called_upon()); }
  void set_attentive(bool attentive) override { attentive_ = attentive; }

  std::uint64_t turn() const { return turn_; }

 private:
  struct Line;
  struct Slot;

  Line& line(int rank) const;
  Slot& slot(int rank, std::uint64_t turn) const;
  char* place(int rank, std::size_t bytes) const;

  char* memory_ = nullptr;
  int rank_ = 0;
  int size_ = 1;
  int collector_ = -1;
  std::size_t room_ = 0;
  std::function<void(int)> ring_;
  std::uint64_t turn_ = 1;
  bool posted_ = false;
  int seen_ = 0;                // the ranks below have posted in this turn
  std::size_t last_bytes_ = 0;  // of the latest tensor that did not share the line
  bool listening_ = false;
  bool attentive_ = false;
};

}  // namespace hora::collectives
