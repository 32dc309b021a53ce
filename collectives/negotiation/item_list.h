// SPDX-License-Identifier: Apache-2.0
// A message that lists requests or responses, some in full and some by their number in the response
// cache. Consecutive numbers cost a bit or a byte each.  [pure]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/negotiation/wire.h"

namespace hora::collectives {

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

}  // namespace hora::collectives
