// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/rank_programs.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/options/program_sections.h"
#include "launcher/plan/rank_list.h"
#include "launcher/text/logical_lines.h"
#include "launcher/text/shell_words.h"
#include "launcher/text/usage_error.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// Every host gets the words of every program.
constexpr std::size_t kMostPrograms = 10'000;

struct Line {
  std::string place;              // "FILE:3"
  std::optional<RankList> ranks;  // none: '*', the rest
  std::vector<std::string> command;
};

Result<Line> read_line(const LogicalLine& text, const std::string& path) {
  Line line{path + ":" + std::to_string(text.number), std::nullopt, {}};
  auto words = split_shell_words(text.text);
  if (!words) return std::move(words).error().with_context(line.place);
  if (words->size() < 2 || (*words)[1].empty()) {
    return usage(line.place + ": no program; expected: RANKS program [arguments]");
  }
  if (words->front() != "*") {
    auto ranks = RankList::parse(words->front(), line.place);
    if (!ranks) return std::move(ranks).error();
    line.ranks = std::move(*ranks);
  }
  line.command.assign(words->begin() + 1, words->end());
  return line;
}

// The two that srun replaces; other characters behind '%' are the program's.
std::vector<std::string> command_of(const Line& line, int rank, std::int64_t offset) {
  std::vector<std::string> command = line.command;
  for (std::string& word : command) {
    std::string out;
    for (std::size_t i = 0; i < word.size(); ++i) {
      const char next = word[i] == '%' && i + 1 < word.size() ? word[i + 1] : '\0';
      if (next == 't' || next == 'o') {
        out += std::to_string(next == 't' ? rank : offset);
        ++i;
      } else {
        out += word[i];
      }
    }
    word = std::move(out);
  }
  return command;
}

class Assignment {
 public:
  Assignment(std::string path, std::vector<Line> lines)
      : path_(std::move(path)), lines_(std::move(lines)) {}

  // Without -np, the lines say how many ranks there are.
  Result<int> count_ranks(int asked) const {
    int most = asked;
    for (const Line& line : lines_) {
      if (!line.ranks && asked == 0) {
        return usage(line.place + ": '*' is for the rest of the ranks, and -np is missing");
      }
      if (!line.ranks) continue;
      if (asked != 0 && line.ranks->largest() >= asked) {
        return usage(line.place + ": rank " + std::to_string(line.ranks->largest()) +
                     " is not in a job of " + counted(asked, "rank"));
      }
      most = std::max(most, line.ranks->largest() + 1);
    }
    return most;
  }

  // For ranks in their order: '*' counts those that it has been given.
  Result<std::vector<std::string>> command(int rank) {
    const Line* owner = nullptr;
    std::int64_t offset = 0;
    for (const Line& line : lines_) {
      const auto index = line.ranks ? line.ranks->index_of(rank) : std::nullopt;
      if (!index) continue;
      if (owner != nullptr) {
        return usage(line.place + ": rank " + std::to_string(rank) + " has a program already, in " +
                     owner->place);
      }
      owner = &line;
      offset = *index;
    }
    if (owner == nullptr) {
      const auto rest =
          std::find_if(lines_.begin(), lines_.end(), [](const Line& line) { return !line.ranks; });
      if (rest == lines_.end()) {
        return usage(path_ + ": no program for rank " + std::to_string(rank) +
                     "; a line that begins with * is for the rest");
      }
      owner = &*rest;
      offset = rest_++;
    }
    return command_of(*owner, rank, offset);
  }

 private:
  std::string path_;
  std::vector<Line> lines_;
  int rest_ = 0;  // ranks of '*' so far
};

Result<Assignment> read_file(const std::string& path, const ProcessInputs& inputs) {
  const auto text = inputs.read_file(path);
  if (!text) return usage("--multi-prog: " + text.error().message);
  std::vector<Line> lines;
  for (const LogicalLine& logical : logical_lines(*text)) {
    auto line = read_line(logical, path);
    if (!line) return std::move(line).error();
    const auto rest =
        std::find_if(lines.begin(), lines.end(), [](const Line& other) { return !other.ranks; });
    if (!line->ranks && rest != lines.end()) {
      return usage(line->place + ": '*' stands in " + rest->place + " already");
    }
    lines.push_back(std::move(*line));
  }
  if (lines.empty()) {
    return usage(path + ": no program; expected lines such as: 0,4-7 program [arguments]");
  }
  return Assignment(path, std::move(lines));
}

}  // namespace

Status use_rank_programs(const ProcessInputs& inputs, JobSpec& job) {
  HORA_TRY(check_may_have_programs(job));
  const std::string path = job.command.front();
  auto assignment = read_file(path, inputs);
  if (!assignment) return std::move(assignment).error();
  const auto count = assignment->count_ranks(job.num_proc);
  if (!count) return count.error();
  for (int rank = 0; rank < *count; ++rank) {
    auto command = assignment->command(rank);
    if (!command) return std::move(command).error();
    // Ranks in a row with the same words are one program, also to MPI.
    if (!job.programs.empty() && job.programs.back().command == *command) {
      ++job.programs.back().ranks;
    } else {
      job.programs.push_back({std::move(*command), 1, job.variables});
    }
    if (job.programs.size() > kMostPrograms) {
      return usage(path + ": more than " + std::to_string(kMostPrograms) +
                   " programs; %t and %o make one for each rank");
    }
  }
  job.num_proc = *count;
  job.command = job.programs.front().command;
  // One program is an ordinary job, whose variables are the job's own.
  if (job.programs.size() == 1) {
    job.programs.clear();
  } else {
    job.variables.clear();
  }
  return Ok{};
}

}  // namespace hora::launcher
