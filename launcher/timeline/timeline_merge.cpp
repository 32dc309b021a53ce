// SPDX-License-Identifier: Apache-2.0
// Merges line by line, so that timelines larger than memory work. A rank that died leaves a file
// without an end, which is still merged.
#include "launcher/timeline/timeline_merge.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>

#include <nlohmann/json.hpp>

#include "rendezvous/base/text.h"
#include "rendezvous/os/files.h"

namespace hora::launcher {

namespace {

// The rank's own event is at the top; other files are recognised by its absence.
constexpr int kHeadLines = 16;
constexpr std::size_t kAtOnce = 1 << 20;

struct Input {
  std::string path;
  TimelineSource source;
};

// The user has named it.
Error not_there(const std::string& path) {
  return make_error(ErrorCode::kUsage, errno_error(errno, "opening " + path).message);
}

// Files are read twice, the second time when all heads are known.
Status check_readable_twice(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return not_there(path);
  if (S_ISREG(info.st_mode)) return Ok{};
  return make_error(ErrorCode::kUsage, path + " is a " +
                                           (S_ISDIR(info.st_mode) ? "folder" : "pipe or a device") +
                                           "; timelines are merged from files");
}

Result<Input> look_at(const std::string& path) {
  HORA_TRY(check_readable_twice(path));
  std::ifstream in(path);
  if (!in) return not_there(path);
  std::string line;
  for (int i = 0; i < kHeadLines && std::getline(in, line); ++i) {
    const std::string_view event = timeline_event(line);
    if (event.empty()) continue;
    if (auto source = read_timeline_source(event)) return Input{path, std::move(*source)};
  }
  return make_error(ErrorCode::kUsage,
                    path + " is not a Hora timeline: it does not begin with an event named 'hora'");
}

// The output replaces its file when it is complete, so it must not be an input.
bool same_file(const std::string& a, const std::string& b) {
  struct stat one {};
  struct stat other {};
  return ::stat(a.c_str(), &one) == 0 && ::stat(b.c_str(), &other) == 0 &&
         one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

Result<std::vector<Input>> look_at_all(const std::vector<std::string>& paths,
                                       const std::string& output) {
  std::vector<Input> inputs;
  std::map<int, std::string> seen;
  for (const std::string& path : paths) {
    if (same_file(path, output)) {
      return make_error(ErrorCode::kUsage,
                        output + " is one of the files to merge; give -o another name");
    }
    auto input = look_at(path);
    if (!input) return std::move(input).error();
    const auto [place, fresh] = seen.emplace(input->source.rank, path);
    if (!fresh) {
      return make_error(ErrorCode::kUsage, place->second + " and " + path + " are both of rank " +
                                               std::to_string(input->source.rank));
    }
    inputs.push_back(std::move(*input));
  }
  return inputs;
}

Status add(const Input& input, std::int64_t zero_ns, os::AtomicFile& out, std::uint64_t& events) {
  std::ifstream in(input.path);
  if (!in) return errno_error(errno, "opening " + input.path);
  std::string line;
  std::string text;
  for (std::uint64_t number = 1; std::getline(in, line); ++number) {
    const std::string_view event = timeline_event(line);
    if (event.empty()) continue;
    auto merged = merged_event(event, input.source, zero_ns);
    if (!merged) {
      // A rank that died may have cut off its last line.
      if (in.peek() == std::ifstream::traits_type::eof()) break;
      return make_error(ErrorCode::kFailed, input.path + ", line " + std::to_string(number) + ": " +
                                                merged.error().message);
    }
    if (!*merged) continue;
    text += (events++ == 0 ? "" : ",\n") + **merged;
    if (text.size() < kAtOnce) continue;
    HORA_TRY(out.write(text));
    text.clear();
  }
  return out.write(text);
}

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

Result<std::string> merge_timelines(const std::vector<std::string>& paths,
                                    const std::string& output) {
  const bool to_standard_output = os::is_standard_output(output);
  auto inputs = look_at_all(paths, to_standard_output ? "/dev/stdout" : output);
  if (!inputs) return std::move(inputs).error();
  std::int64_t zero_ns = INT64_MAX;
  // The earliest start becomes the zero of the common clock.
  for (const Input& input : *inputs) zero_ns = std::min(zero_ns, input.source.start_ns);
  auto out =
      to_standard_output ? os::AtomicFile::standard_output() : os::AtomicFile::make(output, 0666);
  if (!out) return std::move(out).error();
  HORA_TRY(out->write("[\n"));
  std::uint64_t events = 0;
  for (const Input& input : *inputs) HORA_TRY(add(input, zero_ns, *out, events));
  HORA_TRY(out->write("\n]\n"));
  HORA_TRY(out->finish());
  return (to_standard_output ? "standard output" : output) + ": " + counted(events, "event") +
         " of " + counted(inputs->size(), "rank") + "\n";
}

// Reads and rewrites single events of a timeline. In a rank's own file, each tensor is a "process"
// of the viewer; in the merged file each rank is one, and its tensors become threads.

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
