// SPDX-License-Identifier: Apache-2.0
// The operations that callers hold handles of.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "collectives/runtime/operation.h"
#include "hora/hora.h"

namespace hora::collectives {

// A handle is a place in the table and how often the place had been given away before, so that an
// old handle is not taken for a new one: nor is one of the world before this.
class HandleTable {
 public:
  HandleTable() = default;
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;
  ~HandleTable() {
    std::uint64_t next = begin_;
    for (const Slot& place : places_) next = std::max(next, place.turn + 1);
    std::uint64_t known = next_begin_.load();
    while (known < next && !next_begin_.compare_exchange_weak(known, next)) {
    }
  }

  hora_handle add(OperationPtr operation) {
    if (idle_.empty()) {
      idle_.push_back(places_.size());
      places_.emplace_back().turn = begin_;
    }
    const std::size_t at = idle_.back();
    idle_.pop_back();
    places_[at].operation = std::move(operation);
    return static_cast<hora_handle>((places_[at].turn << kSlotBits) | (at + 1));
  }

  // Null for an unknown handle.
  OperationPtr find(hora_handle handle) const {
    const OperationPtr* const found = look_at(handle);
    return found == nullptr ? nullptr : *found;
  }
  // As find(), without a share in it.
  const OperationPtr* look_at(hora_handle handle) const {
    const std::size_t at = slot_of(handle);
    return at < places_.size() ? &places_[at].operation : nullptr;
  }

  OperationPtr take(hora_handle handle) {
    const std::size_t at = slot_of(handle);
    if (at >= places_.size()) return nullptr;
    ++places_[at].turn;
    idle_.push_back(at);
    return std::exchange(places_[at].operation, nullptr);
  }

 private:
  static constexpr int kSlotBits = 28;
  struct Slot {
    OperationPtr operation;  // null: idle
    std::uint64_t turn = 0;
  };

  std::size_t slot_of(hora_handle handle) const {
    const auto bits = static_cast<std::uint64_t>(handle);
    const std::uint64_t at = (bits & ((std::uint64_t{1} << kSlotBits) - 1)) - 1;
    if (handle <= 0 || at >= places_.size()) return SIZE_MAX;
    const Slot& place = places_[static_cast<std::size_t>(at)];
    return place.operation != nullptr && place.turn == bits >> kSlotBits ? at : SIZE_MAX;
  }

  inline static std::atomic<std::uint64_t> next_begin_{0};  // no handle so far has this turn

  const std::uint64_t begin_ = next_begin_.load();
  std::vector<Slot> places_;
  std::vector<std::size_t> idle_;
};

}  // namespace hora::collectives
