// SPDX-License-Identifier: Apache-2.0
// CLI11 checks values and exclusions; spelling and messages are our own.
#include "launcher/options/option_check.h"

#include <CLI/CLI.hpp>

#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// A CLI::App with only the options that were given, since creating all of them would take longer
// than the rest of the start. The message of the first bad value is kept in our own words.
class Checker {
 public:
  Checker(const Spelled& spelled, Verb verb) : spelled_(spelled), verb_(verb) {
    app_.set_help_flag();
    for (const SpelledOption& option : spelled.options) {
      if (options_.count(option.row) == 0) add(*option.row);
    }
    exclude_rivals();
  }

  Result<OptionValues> run() {
    // CLI11 expects the words in reverse order.
    std::vector<std::string> words;
    for (auto option = spelled_.options.rbegin(); option != spelled_.options.rend(); ++option) {
      std::string word(long_name(*option->row));
      // One word per option, so a value that begins with '-' cannot be mistaken for an option.
      if (option->row->takes_value()) word += "=" + option->value.value_or("");
      words.push_back(std::move(word));
    }
    try {
      app_.parse(words);
    } catch (const CLI::ExcludesError&) {
      return make_error(ErrorCode::kUsage, rivals_text());
    } catch (const CLI::Error& error) {
      return make_error(ErrorCode::kUsage, problem_.empty() ? error.what() : problem_);
    }
    HORA_TRY(check_repeated());
    return values();
  }

 private:
  void add(const OptionRow& row) {
    const std::string name(long_name(row));
    if (!row.takes_value()) {
      options_[&row] = app_.add_flag(name);
      return;
    }
    CLI::Option* option = app_.add_option(name, [](const CLI::results_t&) { return true; });
    option->take_all();
    option->check(CLI::Validator(
        [this, &row](std::string& value) {
          std::string problem = check_option_value(row, value);
          // CLI11 wraps the validator's text, so the original is kept.
          if (!problem.empty() && problem_.empty()) problem_ = typed_name(row) + ": " + problem;
          return problem;
        },
        ""));
    options_[&row] = option;
  }

  void exclude_rivals() {
    for (const auto& [row, option] : options_) {
      for (const auto& [rival, other] : options_) {
        // Pointers give each pair an order, so it is registered once.
        if (row < rival && !row->excludes.empty() && row->excludes == rival->excludes) {
          option->excludes(other);
        }
      }
    }
  }

  // Names the options as the user typed them.
  std::string rivals_text() const {
    for (const SpelledOption& a : spelled_.options) {
      for (const SpelledOption& b : spelled_.options) {
        if (a.row != b.row && !a.row->excludes.empty() && a.row->excludes == b.row->excludes) {
          return a.typed + " and " + b.typed + " cannot be used together";
        }
      }
    }
    return "two options cannot be used together";
  }

  // Whichever of two values won, the user who meant the other one would not notice.
  Status check_repeated() const {
    std::map<const OptionRow*, const SpelledOption*> seen;
    for (const SpelledOption& option : spelled_.options) {
      if (!option.value || option.row->has(kRepeats)) continue;
      const SpelledOption& first = *seen.try_emplace(option.row, &option).first->second;
      if (first.value == option.value) continue;
      // What machines join by is a secret.
      const bool is_shown = long_name(*option.row) != "--join";
      const auto shown = [is_shown](const SpelledOption& one) {
        return one.typed + (is_shown ? " " + *one.value : "");
      };
      return make_error(ErrorCode::kUsage, shown(first) + " and " + shown(option) +
                                               " contradict each other; give one of them");
    }
    return Ok{};
  }

  std::string typed_name(const OptionRow& row) const {
    for (const SpelledOption& option : spelled_.options) {
      if (option.row == &row) return option.typed;
    }
    return std::string(shown_name(row));
  }

  OptionValues values() const {
    OptionValues values(verb_);
    for (const SpelledOption& option : spelled_.options) {
      values.add(option.row, option.value.value_or(""));
    }
    return values;
  }

  const Spelled& spelled_;
  Verb verb_;
  CLI::App app_;
  std::map<const OptionRow*, CLI::Option*> options_;
  std::string problem_;
};

}  // namespace

// An option that was not given has no values. Few are given, so they are looked through.
const std::vector<std::string>& OptionValues::all(std::string_view name) const {
  static const std::vector<std::string> none;
  for (const auto& [row, values] : values_) {
    if ((row->verbs & verb_) != 0 && has_name(*row, name)) return values;
  }
  return none;
}

std::string OptionValues::text(std::string_view name, std::string_view otherwise) const {
  const auto& values = all(name);
  return values.empty() ? std::string(otherwise) : values.back();
}

std::string OptionValues::joined(std::string_view name, std::string_view separator) const {
  return join(all(name), separator);
}

std::optional<int> OptionValues::count(std::string_view name) const {
  const auto& values = all(name);
  return values.empty() ? std::nullopt : parse_int<int>(values.back());
}

Result<OptionValues> check_options(const Spelled& spelled, Verb verb) {
  return Checker(spelled, verb).run();
}

}  // namespace hora::launcher
