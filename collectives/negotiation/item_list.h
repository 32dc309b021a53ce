// A message that lists requests or responses, some in full and some by the number that the response
// cache gave them. Numbers that follow each other cost a bit or a byte each.  [pure]
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
  // To be followed by one item in full, written to what this answers.
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

  // After kInFull the item is to be read from in(); after kByNumber it is reference().
  Next next();
  WireReader& in() { return in_; }
  const Reference& reference() const { return reference_; }

 private:
  bool read_list();
  bool read_bits();

  WireReader in_;
  std::vector<std::uint64_t> run_;
  std::size_t place_ = 0;  // in run_
  Reference reference_;
};

}  // namespace hora::collectives
