// SPDX-License-Identifier: Apache-2.0
// Recognizes sequences of requests that repeat.  [pure]
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/negotiation/request.h"
#include "collectives/negotiation/response_cache.h"
#include "collectives/negotiation/wire.h"

namespace hora::collectives {

// A message that lists requests or responses, some in full and some by their number in the response
// cache. Consecutive numbers cost a bit or a byte each.

struct Reference {
  std::int32_t process_set = 0;
  std::uint64_t id = 0;

  friend bool operator==(const Reference&, const Reference&) = default;
};

class ItemWriter {
 public:
  // Starts an item in full: the caller writes it to the returned writer.
  WireWriter& in_full();
  void by_number(Reference reference);
  bool empty() const { return run_.empty() && out_.size() == 0; }
  std::string take();

 private:
  void end_run();

  WireWriter out_;
  std::int32_t run_set_ = 0;
  std::vector<std::uint64_t> run_;
};

class ItemReader {
 public:
  enum class Next { kInFull, kByNumber, kEnd, kMalformed };

  explicit ItemReader(std::string_view bytes) : in_(bytes) {}

  // After kInFull the caller reads the item from in(); after kByNumber it is reference().
  Next next();
  WireReader& in() { return in_; }
  const Reference& reference() const { return reference_; }

 private:
  bool read_list();
  bool read_bits();

  WireReader in_;
  std::vector<std::uint64_t> run_;
  std::size_t place_ = 0;  // the next element of run_
  Reference reference_;
};

// Numbers that a rank has asked for in one message, and will again in the next step: what follows
// from the list as a whole is worked out once.

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
