// SPDX-License-Identifier: Apache-2.0
// Only horarun writes these words, so a mistake is a bug of ours: one word of explanation is
// enough, and the command line library stays out of the agent, which every host is sent.
#include "launcher/agent/agent_options.h"

#include <string_view>
#include <variant>

#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// One word and the member that its value goes into; a flag takes no value.
template <typename Options>
struct OptionRow {
  std::string_view name;
  std::variant<std::string Options::*, int Options::*, std::uint64_t Options::*, bool Options::*,
               std::vector<NeededPart> Options::*>
      field;
};

constexpr OptionRow<AgentOptions> kAgentRows[] = {
    {"--parts", &AgentOptions::parts},
    {"--cache", &AgentOptions::cache_directory},
    {"--library-path", &AgentOptions::library_path},
    {"--run-path", &AgentOptions::run_path},
    {"--program", &AgentOptions::program},
    {"--find", &AgentOptions::find},
    {"--local-bundle", &AgentOptions::local_bundle},
    {"--probe", &AgentOptions::probe},
    {"--report-sha", &AgentOptions::report_sha},
    {"--cleans-cache", &AgentOptions::cleans_cache},
    {"--stay", &AgentOptions::stay},
    {"--cache-max-age", &AgentOptions::cache_max_age_s},
    {"--cache-max-size", &AgentOptions::cache_max_bytes},
    {"--launcher", &AgentOptions::launcher},
    {"--cpus", &AgentOptions::cpus},
    {"--container", &AgentOptions::container},
    {"--container-runtime", &AgentOptions::container_runtime},
    {"--container-args", &AgentOptions::container_args},
    {"--wdir", &AgentOptions::working_directory},
    {"--contained", &AgentOptions::contained},
    {"--shim-margin-ms", &AgentOptions::shim_margin_ms},
    {"--suspended-lease-ms", &AgentOptions::suspended_lease_ms},
};

constexpr OptionRow<CleanOptions> kCleanRows[] = {
    {"--max-age", &CleanOptions::max_age_s},
    {"--max-size", &CleanOptions::max_bytes},
    {"--dry-run", &CleanOptions::dry_run},
};

// Writes the option's value. False: there is none, or it is not a number or list where one is
// needed.
template <typename Options>
bool apply(const OptionRow<Options>& row, const char* value, Options& options) {
  if (const auto* flag = std::get_if<bool Options::*>(&row.field)) {
    options.*(*flag) = true;
    return true;
  }
  if (value == nullptr) return false;
  if (const auto* text = std::get_if<std::string Options::*>(&row.field)) {
    options.*(*text) = value;
    return true;
  }
  if (const auto* list = std::get_if<std::vector<NeededPart> Options::*>(&row.field)) {
    auto parts = parse_part_list(value);
    if (parts) options.*(*list) = std::move(*parts);
    return parts.has_value();
  }
  if (const auto* large = std::get_if<std::uint64_t Options::*>(&row.field)) {
    const auto number = parse_int<std::uint64_t>(value);
    if (number) options.*(*large) = *number;
    return number.has_value();
  }
  const auto number = parse_int<int>(value);
  if (!number || *number < 0) return false;
  options.*(std::get<int Options::*>(row.field)) = *number;
  return true;
}

template <typename Options>
Result<Options> parse(std::span<const char* const> words,
                      std::span<const OptionRow<Options>> rows) {
  Options options;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word(words[i]);
    const OptionRow<Options>* row = nullptr;
    for (const OptionRow<Options>& each : rows) {
      if (each.name == word) row = &each;
    }
    const bool takes_value = row != nullptr && !std::holds_alternative<bool Options::*>(row->field);
    const char* value = takes_value && i + 1 < words.size() ? words[i + 1] : nullptr;
    if (row == nullptr || !apply(*row, value, options)) {
      return make_error(ErrorCode::kUsage,
                        std::string(takes_value && value != nullptr ? value : word));
    }
    if (takes_value) ++i;
  }
  return options;
}

}  // namespace

Result<AgentOptions> parse_agent_options(std::span<const char* const> words) {
  return parse<AgentOptions>(words, kAgentRows);
}

Result<CleanOptions> parse_clean_options(std::span<const char* const> words) {
  return parse<CleanOptions>(words, kCleanRows);
}

CacheLimits cache_limits(std::uint64_t max_age_s, std::uint64_t max_bytes) {
  CacheLimits limits;
  if (max_age_s > 0) limits.max_age = std::chrono::seconds(max_age_s);
  if (max_bytes > 0) limits.max_bytes = max_bytes;
  return limits;
}

}  // namespace hora::launcher
