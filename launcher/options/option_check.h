// SPDX-License-Identifier: Apache-2.0
// Typed options become checked values: names, abbreviations, kinds, ranges, choices, which exclude
// each other.  [pure]
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/option_table.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// The options that a user typed: names, aliases, abbreviations, where the program begins.
// Besides "--name value" and "--name=value" this reads what horovodrun takes and usual parsers do
// not: long names with one dash (-np, -hostfile), unambiguous abbreviations (--disable), and a
// program that begins with the first word that is not an option.

struct SpelledOption {
  const OptionRow* row = nullptr;
  std::string typed;  // the name as it was typed
  std::optional<std::string> value;
};

struct Spelled {
  std::vector<SpelledOption> options;  // in order
  std::vector<std::string> command;    // from the first word that is not an option
  bool after_dashes = false;           // the command came after "--"
};

// Errors (kUsage): an unknown option (with the nearest one), an ambiguous abbreviation, a missing
// or unwanted value.
Result<Spelled> read_spelling(const std::vector<std::string>& arguments, Verb verb);

// Typed options become checked values: kinds, ranges, choices, which exclude each other.
// The one user of the command line library.

// The values of the options that were given, by any of an option's names. Every value has passed
// check_option_value().
class OptionValues {
 public:
  explicit OptionValues(Verb verb) : verb_(verb) {}

  bool has(std::string_view name) const { return !all(name).empty(); }
  // The value of an option that does not repeat.
  std::string text(std::string_view name, std::string_view otherwise = "") const;
  // All values of an option that does, as one list.
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
