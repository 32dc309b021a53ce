// SPDX-License-Identifier: Apache-2.0
// Reads and rewrites single events of a timeline. In a rank's own file, each tensor is a "process"
// of the viewer; in the merged file each rank is one, and its tensors become threads.
#include "launcher/timeline/timeline_lines.h"

#include <nlohmann/json.hpp>

namespace hora::launcher {

namespace {

using Json = nlohmann::ordered_json;

// Our own events have two levels. The JSON library recurses, so deep nesting would exhaust the
// stack.
constexpr int kDeepest = 32;

bool is_too_deep(std::string_view text) {
  int depth = 0;
  bool in_text = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_text && c == '\\') {
      ++at;
    } else if (c == '"') {
      in_text = !in_text;
    } else if (!in_text && (c == '{' || c == '[')) {
      if (++depth > kDeepest) return true;
    } else if (!in_text && (c == '}' || c == ']')) {
      --depth;
    }
  }
  return false;
}

// Returns something other than an object if the text is not one.
Json parse(std::string_view text) {
  return is_too_deep(text) ? Json() : Json::parse(text, nullptr, false);
}

// The distance from `zero_ns` to `start_ns` in microseconds. The numbers come from files and may be
// anything, hence the check for overflow.
double distance_us(std::int64_t start_ns, std::int64_t zero_ns) {
  std::int64_t distance = 0;
  if (!__builtin_sub_overflow(start_ns, zero_ns, &distance)) {
    return static_cast<double>(distance) / 1000.0;
  }
  return (static_cast<double>(start_ns) - static_cast<double>(zero_ns)) / 1000.0;
}

std::string text_of(const Json& event, const char* name) {
  const auto found = event.find(name);
  return found != event.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// Metadata of a process becomes metadata of a thread, except the rank's own.
std::optional<Json> merged_metadata(const Json& event, std::int64_t tensor,
                                    const TimelineSource& source) {
  const std::string name = text_of(event, "name");
  Json merged{{"ph", "M"}, {"name", name}, {"pid", source.rank}};
  if (name == "process_name" && tensor == 0) {
    const std::string host = source.hostname.empty() ? "" : " (" + source.hostname + ")";
    merged["args"] = {{"name", "rank " + std::to_string(source.rank) + host}};
    return merged;
  }
  if (name == "process_sort_index" && tensor == 0) {
    merged["args"] = {{"sort_index", source.rank}};
    return merged;
  }
  if (name == "process_name" || name == "process_sort_index") {
    merged["name"] = name == "process_name" ? "thread_name" : "thread_sort_index";
    merged["tid"] = tensor;
  }
  const auto arguments = event.find("args");
  if (arguments != event.end()) merged["args"] = *arguments;
  return merged;
}

}  // namespace

// The file is a JSON array with one event per line; its commas and brackets are dropped here.
std::string_view timeline_event(std::string_view line) {
  const std::size_t begin = line.find('{');
  const std::size_t end = line.find_last_not_of(" ,\r\n");
  if (begin == std::string_view::npos) return {};
  return line.substr(begin, end + 1 - begin);
}

std::optional<TimelineSource> read_timeline_source(std::string_view event) {
  const Json json = parse(event);
  // The runtime writes this event first.
  if (!json.is_object() || text_of(json, "name") != "hora") return std::nullopt;
  const auto arguments = json.find("args");
  if (arguments == json.end() || !arguments->is_object()) return std::nullopt;
  const auto number = [&](const char* name) -> std::int64_t {
    const auto found = arguments->find(name);
    return found != arguments->end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
  };
  TimelineSource source;
  // Translates the rank's clock to the launcher's.
  if (__builtin_add_overflow(number("rank"), 0, &source.rank) ||
      __builtin_sub_overflow(number("start_ns"), number("clock_offset_ns"), &source.start_ns)) {
    return std::nullopt;
  }
  source.hostname = text_of(*arguments, "hostname");
  return source;
}

Result<std::optional<std::string>> merged_event(std::string_view text, const TimelineSource& source,
                                                std::int64_t zero_ns) {
  Json event = parse(text);
  if (!event.is_object()) return make_error(ErrorCode::kFailed, "it is no JSON object");
  const auto process = event.find("pid");
  const bool of_tensor = process != event.end();
  const std::int64_t tensor =
      of_tensor && process->is_number_integer() ? process->get<std::int64_t>() : 0;
  if (text_of(event, "ph") == "M") {
    const auto merged = merged_metadata(event, tensor, source);
    if (!merged) return std::optional<std::string>();
    return std::optional(merged->dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  const auto time = event.find("ts");
  if (time == event.end() || !time->is_number()) return std::optional<std::string>();
  *time = time->get<double>() + distance_us(source.start_ns, zero_ns);
  event["pid"] = source.rank;
  if (of_tensor) event["tid"] = tensor;
  // Limit the event to the rank; it would span the whole picture.
  if (text_of(event, "s") == "g") event["s"] = "p";
  return std::optional(event.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace hora::launcher
