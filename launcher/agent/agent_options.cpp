// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/agent_options.h"

#include <string_view>
#include <variant>

#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

struct OptionRow {
  std::string_view name;
  // Where it goes; a flag takes no value.
  std::variant<std::string AgentOptions::*, int AgentOptions::*, bool AgentOptions::*,
               std::vector<NeededPart> AgentOptions::*>
      field;
};

constexpr OptionRow kRows[] = {
    {"--parts", &AgentOptions::parts},
    {"--cache", &AgentOptions::cache_directory},
    {"--local-bundle", &AgentOptions::local_bundle},
    {"--probe", &AgentOptions::probe},
    {"--report-sha", &AgentOptions::report_sha},
    {"--cleans-cache", &AgentOptions::cleans_cache},
    {"--launcher", &AgentOptions::launcher},
    {"--shim-margin-ms", &AgentOptions::shim_margin_ms},
    {"--suspended-lease-ms", &AgentOptions::suspended_lease_ms},
};

// Writes the option's value. False: there is none, or it is no number or list where one is due.
bool apply(const OptionRow& row, const char* value, AgentOptions& options) {
  if (const auto* flag = std::get_if<bool AgentOptions::*>(&row.field)) {
    options.*(*flag) = true;
    return true;
  }
  if (value == nullptr) return false;
  if (const auto* text = std::get_if<std::string AgentOptions::*>(&row.field)) {
    options.*(*text) = value;
    return true;
  }
  if (const auto* list = std::get_if<std::vector<NeededPart> AgentOptions::*>(&row.field)) {
    auto parts = parse_part_list(value);
    if (parts) options.*(*list) = std::move(*parts);
    return parts.has_value();
  }
  const auto number = parse_int<int>(value);
  if (!number || *number < 0) return false;
  options.*(std::get<int AgentOptions::*>(row.field)) = *number;
  return true;
}

}  // namespace

Result<AgentOptions> parse_agent_options(std::span<const char* const> words) {
  AgentOptions options;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word(words[i]);
    const OptionRow* row = nullptr;
    for (const OptionRow& each : kRows) {
      if (each.name == word) row = &each;
    }
    const bool takes_value =
        row != nullptr && !std::holds_alternative<bool AgentOptions::*>(row->field);
    const char* value = takes_value && i + 1 < words.size() ? words[i + 1] : nullptr;
    if (row == nullptr || !apply(*row, value, options)) {
      return make_error(ErrorCode::kUsage,
                        std::string(takes_value && value != nullptr ? value : word));
    }
    if (takes_value) ++i;
  }
  return options;
}

}  // namespace hora::launcher
