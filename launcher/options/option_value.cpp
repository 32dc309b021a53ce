// SPDX-License-Identifier: Apache-2.0
// Names and values of single options. Every check has a text that says what is expected.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "launcher/options/option_table.h"
#include "launcher/options/other_launchers.h"
#include "launcher/text/units.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// The limits in the table are whole numbers.
std::string number_text(double value) { return std::to_string(static_cast<std::int64_t>(value)); }

std::string range_text(const OptionRow& row) {
  std::string out = row.kind == ValueKind::kNumber ? "a number" : "a whole number";
  if (row.most < kNoLimit)
    return out + " from " + number_text(row.least) + " to " + number_text(row.most);
  return out + ", " + number_text(row.least) + " or more";
}

bool is_count(const OptionRow& row, std::string_view text) {
  const auto value = parse_int<std::int64_t>(text);
  return value && static_cast<double>(*value) >= row.least &&
         static_cast<double>(*value) <= row.most;
}

// from_chars ignores the locale: "0.5" is valid everywhere.
bool is_number(const OptionRow& row, std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  return error == std::errc{} && stopped == end && std::isfinite(value) && value >= row.least &&
         value <= row.most;
}

bool is_count_list(const OptionRow& row, std::string_view text) {
  for (const std::string_view part : split(text, ',')) {
    if (!is_count(row, part)) return false;
  }
  return true;
}

// Accepts "2 10", where the first number is not above the second.
bool is_count_pair(const OptionRow& row, std::string_view text) {
  const auto words = split(text, ' ');
  return words.size() == 2 && is_count(row, words[0]) && is_count(row, words[1]) &&
         *parse_int<std::int64_t>(words[0]) <= *parse_int<std::int64_t>(words[1]);
}

bool is_duration(const OptionRow& row, std::string_view text) {
  const auto value = parse_duration(text);
  return value && static_cast<double>(value->count()) >= row.least * 1000;
}

bool is_size(const OptionRow& row, std::string_view text) {
  const auto value = parse_size(text);
  return value && static_cast<double>(*value) >= row.least;
}

bool is_choice(const OptionRow& row, std::string_view text) {
  for (const std::string_view word : split(row.metavar, '|')) {
    // The part after the colon is checked by the reader of the value.
    const std::size_t start = word.find(':') + 1;  // 0: a word alone
    if (start > 0 ? text.size() > start && text.substr(0, start) == word.substr(0, start)
                  : word == text) {
      return true;
    }
  }
  return false;
}

std::string choices_text(const OptionRow& row) {
  std::string out;
  const auto words = split(row.metavar, '|');
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 == words.size() ? " or " : ", ";
    out += words[i];
  }
  return out;
}

std::string duration_text(const OptionRow& row) {
  std::string out(kDurationGrammar);
  if (row.least >= 1) out += ", at least " + number_text(row.least) + "s";
  return out;
}

// Takes the first of some names. The rows are looked through several times at each start: no lists.
std::string_view take_name(std::string_view& names) {
  const std::size_t comma = std::min(names.find(','), names.size());
  const std::string_view first = names.substr(0, comma);
  names.remove_prefix(std::min(comma + 1, names.size()));
  return first;
}

}  // namespace

std::vector<std::string_view> names_of(const OptionRow& row) { return split(row.names, ','); }

bool has_name(const OptionRow& row, std::string_view name) {
  for (std::string_view names = row.names; !names.empty();) {
    if (take_name(names) == name) return true;
  }
  return false;
}

std::string_view shown_name(const OptionRow& row) {
  std::string_view names = row.names;
  return take_name(names);
}

// Rows without a long name (none so far) are known by their first one.
std::string_view long_name(const OptionRow& row) {
  for (std::string_view names = row.names; !names.empty();) {
    const std::string_view name = take_name(names);
    if (name.substr(0, 2) == "--") return name;
  }
  return shown_name(row);
}

const OptionRow* find_option(std::string_view name, Verb verb) {
  for (const OptionRow& row : option_table()) {
    if ((row.verbs & verb) != 0 && has_name(row, name)) return &row;
  }
  return nullptr;
}

// Returns an empty text if the value is valid.
std::string check_option_value(const OptionRow& row, std::string_view value) {
  bool is_good = false;
  std::string expected;
  switch (row.kind) {
    case ValueKind::kFlag:
      return "";
    case ValueKind::kText:
      is_good = !value.empty();
      expected = std::string(row.metavar);
      break;
    case ValueKind::kCount:
      is_good = is_count(row, value);
      expected = range_text(row);
      break;
    case ValueKind::kNumber:
      is_good = is_number(row, value);
      expected = range_text(row);
      break;
    case ValueKind::kCountOrAuto:
      is_good = value == "auto" || is_count(row, value);
      expected = range_text(row) + ", or auto";
      break;
    case ValueKind::kCountList:
      is_good = is_count_list(row, value);
      expected = "whole numbers separated by commas";
      break;
    case ValueKind::kCountPair:
      is_good = is_count_pair(row, value);
      expected = "two numbers, each " + range_text(row) + ", the smaller one first";
      break;
    case ValueKind::kDuration:
      is_good = is_duration(row, value);
      expected = duration_text(row);
      break;
    case ValueKind::kSize:
      is_good = is_size(row, value);
      expected = std::string(kSizeGrammar) + (row.least >= 1 ? ", not 0" : "");
      break;
    case ValueKind::kChoice:
      is_good = is_choice(row, value);
      expected = choices_text(row);
      break;
  }
  if (is_good) return "";
  const bool is_partition =
      long_name(row) == "--ssh-port" && !value.empty() && value.find_first_of("0123456789-") != 0;
  return "expected " + expected + ", found " + quote(value) +
         peer_value_answer(long_name(row), value) +
         (is_partition ? " (-p is the SSH port; a partition goes to sbatch or salloc)" : "");
}

}  // namespace hora::launcher
