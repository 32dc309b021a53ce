// SPDX-License-Identifier: Apache-2.0
// Numbers that a rank has asked for in one message, and will again in the next step: what follows
// from the list as a whole is worked out once.  [pure]
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/negotiation/request.h"
#include "collectives/negotiation/response_cache.h"

namespace hora::collectives {

// All of one process set and one priority, and whole groups. It means something as long as the
// cache of that set has forgotten nothing.
struct Sequence {
  std::int32_t process_set = 0;
  std::vector<CacheId> numbers;
  std::vector<const Response*> responses;  // the cache's, one for each number
  std::string message;                     // of an ItemWriter; for requests and for responses
  std::uint64_t forgotten = 0;             // ResponseCache::forgotten() at the time
  std::int64_t reduced_bytes = 0;          // of all; -1: not all are reductions

  // Since they have run.
  std::uint64_t learned = 0;          // ResponseCache::learned() after them
  std::int64_t threshold_bytes = -1;  // of their fusion plan; -1: there is none yet
  bool one_step = false;              // by that plan
};
using SequencePtr = std::shared_ptr<Sequence>;

// The last sequences that a rank has asked for.
class Sequences {
 public:
  // Shorter ones are not worth it.
  static constexpr std::size_t kShortest = 8;

  // These numbers of a set, in the order in which they were asked for, if they make a sequence.
  void keep(std::int32_t process_set, std::vector<CacheId> numbers, const ResponseCache& cache);
  // The one that begins with this number and is as long; null: none does.
  const SequencePtr& find(std::int32_t process_set, CacheId first, std::size_t size) const;
  // The one with this message; null: none.
  const SequencePtr& find(std::string_view message) const;

 private:
  static constexpr std::size_t kMost = 8;

  std::vector<SequencePtr> kept_;
  std::size_t oldest_ = 0;
};

}  // namespace hora::collectives
