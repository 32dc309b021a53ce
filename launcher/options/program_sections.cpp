// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/program_sections.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/options/job_options.h"
#include "launcher/options/option_check.h"
#include "launcher/options/settings.h"
#include "launcher/plan/plan.h"
#include "launcher/plan/selection.h"
#include "launcher/text/user_input.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

// The first program's options are those of the job. The others have few of their own: what one
// world can have only once (hosts, limits, the runtime's settings) would look like a choice there.

namespace {

constexpr std::string_view kSeparator = ":";
constexpr std::string_view kNumProcOption = "--num-proc";
// Nothing here changes where a rank runs, or how the ranks find each other.
constexpr std::string_view kOwnOptions[] = {kNumProcOption, "--env", "--env-file", "--module"};

// "program 2 (./b)", counted as people do.
std::string name_of(std::size_t number, const std::vector<std::string>& command) {
  const std::string text = "program " + std::to_string(number);
  return command.empty() ? text : text + " (" + visible_line(command.front()) + ")";
}

std::string name_of(std::size_t number, const ProgramSection& section) {
  return section.place.empty() ? name_of(number, section.spelled.command) : section.place;
}

// Cuts the command at its first ':' and returns the arguments after it, if there are any.
std::optional<std::vector<std::string>> cut(Spelled& spelled) {
  auto& words = spelled.command;
  const auto colon = std::find(words.begin(), words.end(), kSeparator);
  if (spelled.after_dashes || colon == words.end()) return std::nullopt;
  std::vector<std::string> rest(std::next(colon), words.end());
  words.erase(colon, words.end());
  return rest;
}

bool is_own_option(const SpelledOption& option) { return is_option_of_program(*option.row); }

Status check_section(const ProgramSection& section, std::size_t number) {
  const bool in_file = !section.place.empty();
  for (const SpelledOption& option : section.spelled.options) {
    if (!is_own_option(option)) {
      return usage(name_of(number, section) + ": " + option.typed +
                   " is for the whole job; put it " +
                   (in_file ? "on the command line" : "before the first program"));
    }
  }
  const auto& command = section.spelled.command;
  if (command.empty() || command.front().empty()) {
    if (in_file) {
      return usage(section.place + ": no program; expected: -np N program [arguments]");
    }
    return usage("no program behind ':' number " + std::to_string(number - 1) +
                 "; expected: ... : -np N program [arguments]; put -- before a program to pass ':' "
                 "on to it");
  }
  return Ok{};
}

// With the settings of its own options from the layers of configuration, as for the first program.
// They are the same files; their settings of the job have been read with that program.
Result<OptionValues> settle_section(const ProgramSection& section, const Spelled& first,
                                    const ProcessInputs& inputs) {
  Spelled with_files = section.spelled;
  for (const SpelledOption& option : first.options) {
    const std::string_view name = long_name(*option.row);
    if (name == "--config-file" || name == "--no-config") with_files.options.push_back(option);
  }
  auto settled = settle_options(with_files, kVerbLaunch, inputs);
  if (!settled) return std::move(settled).error();
  std::erase_if(settled->spelled.options,
                [](const SpelledOption& option) { return !is_own_option(option); });
  return check_options(settled->spelled, kVerbLaunch);
}

Result<Program> read_section(const ProgramSection& section, const Spelled& first,
                             const ProcessInputs& inputs, std::vector<std::string>& warnings) {
  const auto& options = section.spelled.options;
  const bool has_number = std::any_of(
      options.begin(), options.end(),
      [](const SpelledOption& option) { return long_name(*option.row) == kNumProcOption; });
  if (!has_number) {
    const std::string_view which = section.place.empty() ? " behind ':'" : "";
    return usage("-np is missing; each program" + std::string(which) +
                 " needs its number of ranks");
  }
  auto values = settle_section(section, first, inputs);
  if (!values) return std::move(values).error();
  Program program;
  program.ranks = values->count(kNumProcOption).value_or(0);
  program.command = section.spelled.command;
  if (values->has("--module")) program.command.insert(program.command.begin(), {"python3", "-m"});
  // The reader of these options fills a job; only its variables are of interest.
  JobSpec part;
  HORA_TRY(read_environment_options(*values, inputs, part, warnings));
  program.variables = std::move(part.variables);
  return program;
}

// Those after the first ':' of the arguments of `first`, from program `number` on.
Result<std::vector<ProgramSection>> sections_behind(Spelled& first, std::size_t number,
                                                    const std::string& place) {
  std::vector<ProgramSection> sections;
  // Each section is read as a command line: its options end at its program. A ':' before the
  // program may be the value of an option; one after it ends the section.
  for (auto rest = cut(first); rest; rest = cut(sections.back().spelled)) {
    auto section = read_spelling(*rest, kVerbLaunch);
    if (!section) {
      const std::size_t at = number + sections.size();
      return std::move(section).error().with_context(place.empty() ? "program " + std::to_string(at)
                                                                   : place);
    }
    sections.push_back({std::move(*section), place});
  }
  return sections;
}

Status check_sections(const std::vector<ProgramSection>& sections, std::size_t number) {
  for (const ProgramSection& section : sections) HORA_TRY(check_section(section, number++));
  return Ok{};
}

Result<std::vector<ProgramSection>> read_line(const LogicalLine& line, const std::string& path) {
  const std::string place = path + ":" + std::to_string(line.number);
  const auto words = split_shell_words(line.text);
  if (!words) return words.error().with_context(place);
  auto spelled = read_spelling(*words, kVerbLaunch);
  if (!spelled) return std::move(spelled).error().with_context(place);
  auto more = sections_behind(*spelled, 2, place);
  if (!more) return more;
  more->insert(more->begin(), {std::move(*spelled), place});
  HORA_TRY(check_sections(*more, 1));
  return more;
}

Status check_sum(std::int64_t sum) {
  if (sum <= kMaxRanks) return Ok{};
  return usage("the programs ask for " + std::to_string(sum) + " ranks; a job has at most " +
               std::to_string(kMaxRanks));
}

// Appends what the sections say to job.programs, and adds their ranks to job.num_proc.
Status add_programs(const std::vector<ProgramSection>& sections, const Spelled& first,
                    const ProcessInputs& inputs, JobSpec& job, std::vector<std::string>& warnings) {
  // Each number is within the limit of -np, their sum need not be.
  std::int64_t sum = job.num_proc;
  for (const ProgramSection& section : sections) {
    auto program = read_section(section, first, inputs, warnings);
    if (!program) {
      return std::move(program).error().with_context(name_of(job.programs.size() + 1, section));
    }
    sum += program->ranks;
    job.programs.push_back(std::move(*program));
  }
  HORA_TRY(check_sum(sum));
  job.num_proc = static_cast<int>(sum);
  return Ok{};
}

}  // namespace

bool is_option_of_program(const OptionRow& row) {
  return std::find(std::begin(kOwnOptions), std::end(kOwnOptions), long_name(row)) !=
         std::end(kOwnOptions);
}

// Elastic epochs and mpirun number and start the ranks by their own rules.
Status check_may_have_programs(const JobSpec& job) {
  if (job.elastic) {
    return usage(
        "several programs cannot be used with elastic jobs, whose number of ranks changes");
  }
  if (job.by_mpirun) {
    return usage(
        "several programs cannot be used with --mpi; --pmi runs MPI programs without mpirun");
  }
  return Ok{};
}

Result<std::vector<ProgramSection>> take_program_sections(Spelled& spelled) {
  auto sections = sections_behind(spelled, 2, "");
  if (!sections) return sections;
  HORA_TRY(check_sections(*sections, 2));
  return sections;
}

Result<std::vector<ProgramSection>> read_program_file(const std::string& path,
                                                      const ProcessInputs& inputs) {
  const auto text = inputs.read_file(path);
  if (!text) return usage("--programs: " + text.error().message);
  std::vector<ProgramSection> sections;
  for (const LogicalLine& line : logical_lines(*text)) {
    auto read = read_line(line, path);
    if (!read) return read;
    std::move(read->begin(), read->end(), std::back_inserter(sections));
  }
  if (sections.empty()) {
    return usage(path + ": no program; expected lines such as: -np N program [arguments]");
  }
  return sections;
}

// A program may have a ':' among its arguments; only one followed by -np looks like mpirun's.
std::optional<std::string> colon_warning(const Spelled& first,
                                         const std::vector<ProgramSection>& sections) {
  const Spelled& last = sections.empty() ? first : sections.back().spelled;
  if (!last.after_dashes) return std::nullopt;
  const auto& words = last.command;
  const auto colon = std::find(words.begin(), words.end(), kSeparator);
  if (colon == words.end() || std::next(colon) == words.end()) return std::nullopt;
  const OptionRow* const option = find_option(*std::next(colon), kVerbLaunch);
  if (option == nullptr || long_name(*option) != kNumProcOption) return std::nullopt;
  return "':' behind -- is an argument of " + quote(words.front()) +
         " and begins no other program; leave -- out if it is to begin one";
}

Status read_program_sections(const std::vector<ProgramSection>& sections, const Spelled& first,
                             const ProcessInputs& inputs, JobSpec& job,
                             std::vector<std::string>& warnings) {
  if (sections.empty()) return Ok{};
  HORA_TRY(check_may_have_programs(job));
  if (job.num_proc == 0) {
    return usage(name_of(1, job.command) + ": -np is missing; each of several programs needs it");
  }
  // Its variables are its own, as those of the others are.
  job.programs.push_back({job.command, job.num_proc, std::exchange(job.variables, {})});
  return add_programs(sections, first, inputs, job, warnings);
}

Status use_program_file(const std::vector<ProgramSection>& sections, const Spelled& first,
                        const ProcessInputs& inputs, JobSpec& job,
                        std::vector<std::string>& warnings) {
  HORA_TRY(check_may_have_programs(job));
  const int asked = std::exchange(job.num_proc, 0);
  job.variables.clear();  // they are read again, with those of each program
  std::vector<SpelledOption> common;
  std::copy_if(first.options.begin(), first.options.end(), std::back_inserter(common),
               [](const SpelledOption& option) {
                 const std::string_view name = long_name(*option.row);
                 return name == "--env" || name == "--env-file";
               });
  auto with_common = sections;
  for (ProgramSection& section : with_common) {
    auto& options = section.spelled.options;
    options.insert(options.begin(), common.begin(), common.end());
  }
  HORA_TRY(add_programs(with_common, first, inputs, job, warnings));
  if (asked != 0 && asked != job.num_proc) {
    return usage("-np " + std::to_string(asked) + ": the programs of the file ask for " +
                 counted(job.num_proc, "rank") + "; leave -np out");
  }
  job.command = job.programs.front().command;
  if (job.programs.size() > 1) return Ok{};
  job.variables = std::move(job.programs.front().variables);
  job.programs.clear();
  return Ok{};
}

namespace {

// Every host gets the words of every program.
constexpr std::size_t kMostPrograms = 10'000;

struct Line {
  std::string place;              // "FILE:3"
  std::optional<RankList> ranks;  // none: '*', the rest
  std::vector<std::string> command;
};

Result<Line> read_program_line(const LogicalLine& text, const std::string& path) {
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

// The two that srun replaces; other characters after '%' are the program's.
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
    auto line = read_program_line(logical, path);
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
