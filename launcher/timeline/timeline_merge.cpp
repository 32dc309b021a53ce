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

#include "launcher/timeline/timeline_lines.h"
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

}  // namespace hora::launcher
