// SPDX-License-Identifier: Apache-2.0
#include "launcher/engines/engine.h"

#include <algorithm>
#include <optional>

#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kBlanks = " \t\r\n";

Error unreadable(std::string_view origin, const std::string& what, std::string_view found) {
  return make_error(ErrorCode::kUsage,
                    std::string(origin) + ": expected " + what + ", found " + quote(found));
}

// By way of the parser of -H: its rules hold for names that an engine gives, too, and equal names
// become one host.
Result<std::vector<Host>> merged(const std::string& list, std::string_view origin) {
  if (list.empty()) {
    return make_error(ErrorCode::kUsage, std::string(origin) + " names no host");
  }
  return parse_host_list(list, origin);
}

}  // namespace

Result<std::string> needed_variable(const EngineInputs& inputs, std::string_view name) {
  auto value = inputs.variable(name);
  if (value && !value->empty()) return std::move(*value);
  return make_error(ErrorCode::kUsage, "$" + std::string(name) + " is not set");
}

// As agents and the script of a step find it: launcher/dial/dial_protocol.cpp.
std::string cache_folder(const EngineInputs& inputs) {
  std::string base = inputs.variable("XDG_CACHE_HOME").value_or("");
  const std::string home = inputs.variable("HOME").value_or("");
  if (base.empty() && !home.empty()) base = home + "/.cache";
  return base.starts_with('/') ? base + "/hora" : "";
}

Result<std::string> needed_file(const EngineInputs& inputs, std::string_view name) {
  auto path = needed_variable(inputs, name);
  if (!path) return path;
  auto text = inputs.read_file(*path);
  if (text) return text;
  // The user can fix this, by --engine none at least.
  Error error = std::move(text).error().with_context("$" + std::string(name));
  error.code = ErrorCode::kUsage;
  return error;
}

std::vector<std::string> words_of(std::string_view text, std::string_view separators) {
  std::vector<std::string> words;
  for (std::size_t at = 0; (at = text.find_first_not_of(separators, at)) != text.npos;) {
    const std::size_t end = std::min(text.find_first_of(separators, at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

Result<std::vector<Host>> count_hosts(std::string_view words, std::string_view origin) {
  std::string list;
  for (const std::string& word : words_of(words, kBlanks)) {
    list += (list.empty() ? "" : ",") + word + ":1";
  }
  return merged(list, origin);
}

Result<std::vector<Host>> pair_hosts(std::string_view words, std::string_view origin) {
  const std::vector<std::string> all = words_of(words, kBlanks);
  if (all.size() % 2 != 0) return unreadable(origin, "pairs of host and slots", words);
  std::string list;
  for (std::size_t i = 0; i < all.size(); i += 2) {
    list += (list.empty() ? "" : ",") + all[i] + ":" + all[i + 1];
  }
  return merged(list, origin);
}

std::string only_host(const std::vector<Host>& hosts) {
  return hosts.size() == 1 ? hosts.front().name : "";
}

void give_slots(std::vector<Host>& hosts, const std::vector<Host>& at_start) {
  int least = kMaxSlotsPerHost;
  for (const Host& host : at_start) least = std::min(least, std::max(host.slots.value_or(1), 1));
  if (at_start.empty()) least = 1;
  for (Host& host : hosts) {
    const auto known = std::find_if(at_start.begin(), at_start.end(),
                                    [&host](const Host& each) { return each.name == host.name; });
    host.slots = known == at_start.end() ? least : known->slots;
  }
}

Result<std::vector<int>> expand_counts(std::string_view text, std::string_view origin,
                                       std::size_t limit) {
  std::vector<int> counts;
  // The limit stops "1(x2000000000)" before it fills the memory.
  for (const std::string_view item : split(text, ',')) {
    const std::size_t open = item.find("(x");
    const auto count = parse_int<int>(item.substr(0, open));
    std::optional<int> times = 1;
    if (open != std::string_view::npos) {
      const std::string_view rest = item.substr(open + 2);
      times = rest.empty() || rest.back() != ')' ? std::nullopt
                                                 : parse_int<int>(rest.substr(0, rest.size() - 1));
    }
    const bool fits = count && times && *count >= 0 && *count <= kMaxSlotsPerHost && *times > 0 &&
                      static_cast<std::size_t>(*times) <= limit - counts.size();
    if (!fits) return unreadable(origin, "a count for each host such as 4,2(x3)", text);
    counts.insert(counts.end(), static_cast<std::size_t>(*times), *count);
  }
  return counts;
}

}  // namespace hora::launcher
