// SPDX-License-Identifier: Apache-2.0
// Typed options become checked values: kinds, ranges, choices, which exclude each other.  [pure]
// The one user of the command line library.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/option_spelling.h"
#include "launcher/options/option_table.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// The values of the options that were given, by any of an option's names. Every value has passed
// check_option_value().
class OptionValues {
 public:
  explicit OptionValues(Verb verb) : verb_(verb) {}

  bool has(std::string_view name) const { return !all(name).empty(); }
  // Of an option that does not repeat.
  std::string text(std::string_view name, std::string_view otherwise = "") const;
  // Of one that does: all values, as one list.
  std::string joined(std::string_view name, std::string_view separator) const;
  std::optional<int> count(std::string_view name) const;
  // In the order in which they were given; a flag has one empty value.
  const std::vector<std::string>& all(std::string_view name) const;

  Verb verb() const { return verb_; }

  void add(const OptionRow* row, std::string value) { values_[row].push_back(std::move(value)); }
  const std::map<const OptionRow*, std::vector<std::string>>& rows() const { return values_; }

 private:
  Verb verb_;
  std::map<const OptionRow*, std::vector<std::string>> values_;  // rows lie in table order
};

// Errors (kUsage) name the option as it was typed, what was found and what was expected. Two values
// of an option that does not repeat are an error, unless they are the same.
Result<OptionValues> check_options(const Spelled& spelled, Verb verb);

}  // namespace hora::launcher
