// SPDX-License-Identifier: Apache-2.0
// The environment of a rank has layers: the host's own variables, what the launcher forwards, the
// agent's, and the rank's. All ranks of a host share the strings of the first three.
#include "launcher/agent/rank_environment.h"

#include <cstring>

namespace hora::launcher {

namespace {

constexpr std::string_view kBundle = "@bundle@";
constexpr std::string_view kEnvironment = "@environment@";

// The PATH for a machine where none is set (cron, `env -i`); shells have a default of their own.
constexpr std::string_view kUsualPath = "/usr/local/bin:/usr/bin:/bin";

// A name with '=' or a NUL byte would change the meaning of the entries that follow it.
Status check(const Variable& variable) {
  const auto& [name, value] = variable;
  if (name.empty() || name.find('=') != std::string::npos || name.find('\0') != std::string::npos) {
    return make_error(ErrorCode::kUsage, "'" + name + "' cannot be the name of a variable");
  }
  if (value.find('\0') != std::string::npos) {
    return make_error(ErrorCode::kUsage, "the value of " + name + " holds a NUL byte");
  }
  return Ok{};
}

Status check_all(const HostOrder& order) {
  for (const Variable& variable : order.environment) HORA_TRY(check(variable));
  for (const Variable& variable : order.prepend_paths) HORA_TRY(check(variable));
  for (const RankOrder& rank : order.ranks) {
    for (const Variable& variable : rank.environment) HORA_TRY(check(variable));
  }
  return Ok{};
}

// "LC_*" stands for every name that begins so.
bool matches(std::string_view name, std::string_view pattern) {
  if (pattern.empty() || pattern.back() != '*') return name == pattern;
  pattern.remove_suffix(1);
  return name.substr(0, pattern.size()) == pattern;
}

// As in a .gitignore: the last pattern that matches decides, and "!" takes a name out.
bool is_listed(std::string_view name, const std::vector<std::string>& patterns) {
  bool listed = false;
  for (std::string_view pattern : patterns) {
    const bool takes_out = pattern.substr(0, 1) == "!";
    if (takes_out) pattern.remove_prefix(1);
    if (matches(name, pattern)) listed = !takes_out;
  }
  return listed;
}

std::vector<Variable> own_variables(const HostOrder& order, const char* const* machine) {
  std::vector<Variable> found;
  if (order.own_variables.empty() || machine == nullptr) return found;
  for (; *machine != nullptr; ++machine) {
    const std::string_view entry(*machine);
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos || equals == 0) continue;
    const std::string_view name = entry.substr(0, equals);
    if (is_listed(name, order.own_variables)) found.emplace_back(name, entry.substr(equals + 1));
  }
  return found;
}

// Only the agent knows where things are on its host.
Result<std::string> with_place(std::string text, std::string_view word, std::string_view root) {
  std::size_t at = 0;
  while ((at = text.find(word, at)) != std::string::npos) {
    if (root.empty()) {
      return make_error(ErrorCode::kNotFound,
                        "the ranks need " + std::string(word) + ", which is not here");
    }
    text.replace(at, word.size(), root);
    at += root.size();
  }
  return text;
}

}  // namespace

std::string_view RankEnvironment::find(std::string_view name) const {
  for (const char* entry : pointers) {
    if (entry == nullptr) break;
    const std::string_view text(entry);
    if (text.size() > name.size() && text[name.size()] == '=' &&
        text.substr(0, name.size()) == name) {
      return text.substr(name.size() + 1);
    }
  }
  return {};
}

Result<HostEnvironment> HostEnvironment::build(const HostOrder& order, const char* const* machine,
                                               const Places& places,
                                               std::vector<Variable> agent_variables) {
  HORA_TRY(check_all(order));
  HostEnvironment built;
  for (const Variable& variable : order.prepend_paths) {
    auto value = with_place(variable.second, kBundle, places.bundle);
    if (value) value = with_place(std::move(*value), kEnvironment, places.environment);
    if (!value) return std::move(value).error();
    built.prepend_.emplace_back(variable.first, std::move(*value));
  }
  // A later layer replaces the value in place, so no name occurs twice.
  const auto set = [&built](const std::string& name, const std::string& value) {
    const auto [place, added] = built.index_.emplace(name, built.strings_.size());
    if (added) built.strings_.emplace_back();
    built.strings_[place->second] = name + "=" + value;
  };
  for (const auto& [name, value] : own_variables(order, machine))
    set(name, built.joined(name, value));
  for (const auto& [name, value] : order.environment) set(name, built.joined(name, value));
  if (built.index_.count("PATH") == 0) set("PATH", built.joined("PATH", kUsualPath));
  // The paths must be there even if no layer sets the variable.
  for (const auto& [name, path] : built.prepend_) {
    if (built.index_.count(name) == 0) set(name, built.joined(name, ""));
  }
  // The agent's variables come last, so that no job can redirect its flight recorder or its mark.
  for (const auto& [name, value] : agent_variables) set(name, value);
  built.agent_variables_ = std::move(agent_variables);
  return built;
}

std::string HostEnvironment::joined(const std::string& name, std::string_view value) const {
  std::string text;
  for (const auto& [path_name, path] : prepend_) {
    if (path_name != name) continue;
    if (!text.empty()) text.push_back(':');
    text.append(path);
  }
  // An empty entry in PATH means the working directory.
  if (!text.empty() && !value.empty()) text.push_back(':');
  return text.append(value);
}

// Points at the shared strings where it can; only the rank's own variables are copied.
RankEnvironment HostEnvironment::for_rank(const RankOrder& rank) const {
  RankEnvironment result;
  const auto is_agents = [this](const std::string& name) {
    for (const Variable& variable : agent_variables_) {
      if (variable.first == name) return true;
    }
    return false;
  };
  std::unordered_map<std::string_view, std::size_t> own_index;
  for (const auto& [name, value] : rank.environment) {
    // No rank may override what the agent sets.
    if (is_agents(name)) continue;
    std::string entry = name + "=" + joined(name, value);
    const auto [known, added] = own_index.emplace(name, result.own.size());
    if (added) {
      result.own.push_back(std::move(entry));
    } else {
      result.own[known->second] = std::move(entry);
    }
  }
  result.pointers.reserve(strings_.size() + result.own.size() + 1);
  for (const std::string& entry : strings_) {
    result.pointers.push_back(const_cast<char*>(entry.c_str()));
  }
  for (const auto& [name, own] : own_index) {
    char* entry = result.own[own].data();
    const auto place = index_.find(std::string(name));
    if (place != index_.end()) {
      result.pointers[place->second] = entry;
    } else {
      result.pointers.push_back(entry);
    }
  }
  result.pointers.push_back(nullptr);
  return result;
}

}  // namespace hora::launcher
