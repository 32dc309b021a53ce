#include "launcher/timeline/timeline_merge.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>

#include "launcher/timeline/timeline_lines.h"

namespace hora::launcher {

namespace {

constexpr int kHeadLines = 16;

struct Input {
  std::string path;
  TimelineSource source;
};

Result<Input> look_at(const std::string& path) {
  std::ifstream in(path);
  if (!in) return errno_error(errno, "opening " + path);
  std::string line;
  for (int i = 0; i < kHeadLines && std::getline(in, line); ++i) {
    const std::string_view event = timeline_event(line);
    if (event.empty()) continue;
    if (auto source = read_timeline_source(event)) return Input{path, std::move(*source)};
  }
  return make_error(ErrorCode::kUsage,
                    path + " is not a timeline of Hora: no event named 'hora' at its top");
}

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

Status add(const Input& input, std::int64_t zero_ns, std::ofstream& out, std::uint64_t& events) {
  std::ifstream in(input.path);
  if (!in) return errno_error(errno, "opening " + input.path);
  std::string line;
  for (std::uint64_t number = 1; std::getline(in, line); ++number) {
    const std::string_view event = timeline_event(line);
    if (event.empty()) continue;
    auto merged = merged_event(event, input.source, zero_ns);
    if (!merged) {
      if (in.peek() == std::ifstream::traits_type::eof()) break;  // cut off when its rank died
      return make_error(ErrorCode::kFailed, input.path + ", line " + std::to_string(number) + ": " +
                                                merged.error().message);
    }
    if (!*merged) continue;
    out << (events++ == 0 ? "" : ",\n") << **merged;
  }
  return Ok{};
}

}  // namespace

Result<std::string> merge_timelines(const std::vector<std::string>& paths,
                                    const std::string& output) {
  auto inputs = look_at_all(paths, output);
  if (!inputs) return std::move(inputs).error();
  std::int64_t zero_ns = INT64_MAX;
  for (const Input& input : *inputs) zero_ns = std::min(zero_ns, input.source.start_ns);
  std::ofstream out(output, std::ios::trunc);
  if (!out) return errno_error(errno, "opening " + output);
  out << "[\n";
  std::uint64_t events = 0;
  for (const Input& input : *inputs) HORA_TRY(add(input, zero_ns, out, events));
  out << "\n]\n";
  out.close();
  if (!out) return errno_error(errno, "writing " + output);
  return output + ": " + std::to_string(events) + " events of " + std::to_string(inputs->size()) +
         (inputs->size() == 1 ? " rank\n" : " ranks\n");
}

}  // namespace hora::launcher
