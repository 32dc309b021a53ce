#include "launcher/options/option_check.h"

#include <utility>

#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// Names both options as the user typed them.
Status check_rivals(const Spelled& spelled) {
  for (const SpelledOption& a : spelled.options) {
    for (const SpelledOption& b : spelled.options) {
      if (a.row != b.row && !a.row->excludes.empty() && a.row->excludes == b.row->excludes) {
        return make_error(ErrorCode::kUsage, a.typed + " and " + b.typed +
                                                 " exclude each other; expected one of them");
      }
    }
  }
  return Ok{};
}

}  // namespace

// An option that was not given has no values.
const std::vector<std::string>& OptionValues::all(std::string_view name) const {
  static const std::vector<std::string> none;
  const OptionRow* row = find_option(name, verb_);
  const auto found = values_.find(row);
  return row == nullptr || found == values_.end() ? none : found->second;
}

std::string OptionValues::text(std::string_view name, std::string_view otherwise) const {
  const auto& values = all(name);
  return values.empty() ? std::string(otherwise) : values.back();
}

std::optional<int> OptionValues::count(std::string_view name) const {
  const auto& values = all(name);
  return values.empty() ? std::nullopt : parse_int<int>(values.back());
}

Result<OptionValues> check_options(const Spelled& spelled, Verb verb) {
  OptionValues values(verb);
  for (const SpelledOption& option : spelled.options) {
    std::string value = option.value.value_or("");
    if (option.row->takes_value()) {
      if (const std::string problem = check_option_value(*option.row, value); !problem.empty()) {
        return make_error(ErrorCode::kUsage, option.typed + ": " + problem);
      }
    }
    values.add(option.row, std::move(value));
  }
  HORA_TRY(check_rivals(spelled));
  return values;
}

}  // namespace hora::launcher
