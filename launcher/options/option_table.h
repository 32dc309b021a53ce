// SPDX-License-Identifier: Apache-2.0
// Every option of horarun, once: the parser, --help, the manual page and docs/reference/cli.md are
// made from these rows.  [pure]
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hora::launcher {

enum class ValueKind {
  kFlag,
  kText,         // not empty
  kCount,        // a whole number from `least` to `most`
  kNumber,       // a decimal number from `least` to `most`
  kCountOrAuto,  // a count, or the word "auto"
  kCountList,    // counts separated by commas
  kCountPair,    // two counts, two words of the command line; the value is "MIN MAX"
  kDuration,     // from `least` seconds
  kSize,         // bytes, from `least`
  kChoice,       // one of the words in `metavar`, separated by '|'; after "word:REST" any text
};

// Which command lines know the option.
enum Verb : unsigned {
  kVerbLaunch = 1,  // horarun [options] program
  kVerbCache = 2,   // horarun cache ls|clean [options]
  kVerbRendezvous = 4,
  kVerbDoctor = 8,       // horarun doctor [options]
  kVerbKubernetes = 16,  // horarun k8s [options] program
  kVerbJobs = 32,        // horarun jobs, top, attach, cancel
};

enum Trait : unsigned {
  kCommon = 1,   // shown by --help, not only by --help=all
  kHidden = 2,   // accepted, shown nowhere but in the reference
  kRepeats = 4,  // may be given several times, all count
  kOurs = 8,     // horovodrun does not have it; yields to its options in abbreviations
};

// One past the largest count that `int` holds without risk.
inline constexpr double kNoLimit = 2e9;

struct OptionRow {
  std::string_view names;  // "-np,--num-proc": the first one is shown in messages
  ValueKind kind = ValueKind::kFlag;
  std::string_view metavar = {};
  std::string_view group = {};
  std::string_view help = {};
  unsigned traits = 0;
  unsigned verbs = kVerbLaunch | kVerbKubernetes;
  double least = 0;
  double most = kNoLimit;
  std::string_view variable = {};    // set in every rank's environment to the value
  std::string_view flag_value = {};  // kFlag with a variable: its value; empty: none is set
  std::string_view excludes = {};    // options of one such name exclude each other
  std::string_view needs = {};       // the option without which this one has no effect; of an
                                     // unavailable one: what this version lacks

  bool has(Trait trait) const { return (traits & trait) != 0; }
  bool takes_value() const { return kind != ValueKind::kFlag; }
};

std::span<const OptionRow> option_table();

std::vector<std::string_view> names_of(const OptionRow& row);
bool has_name(const OptionRow& row, std::string_view name);
// The first name, for messages; the first name with two dashes.
std::string_view shown_name(const OptionRow& row);
std::string_view long_name(const OptionRow& row);
// The help text of the option for this verb.
std::string_view help_of(const OptionRow& row, Verb verb);
// The heading of the group in the help of this verb.
std::string_view heading_of(std::string_view group, Verb verb);
// The row with this exact name ("-np", "--num-proc"), among those of the verb; nullptr when none.
const OptionRow* find_option(std::string_view name, Verb verb);

// The problem of `value` for this option, as "expected ..., found 'x'"; empty: none.
std::string check_option_value(const OptionRow& row, std::string_view value);

}  // namespace hora::launcher
