// SPDX-License-Identifier: Apache-2.0
#include "launcher/startup/start_board.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "launcher/failures/host_failure.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/time.h"

namespace hora::launcher {

// Keeps when each host entered each stage, and renders that as a line, a table or a waterfall. It
// does no I/O, and the caller passes the time.

namespace {

// What is known of a stage. --timings, reports and the waterfall print the names, and scripts may
// search for them.
struct StageRow {
  std::string_view name;
  char letter;               // in the bars
  std::string_view meaning;  // of the letter
  std::string_view cause;    // StageAdvice, whose {host} and {ssh} fill_command() fills in
  std::string_view command;
};

// By Stage.
constexpr StageRow kRows[] = {
    {"absent", '.', "its batch system has not started it",
     "its engine has not started it: the pod may be pending, pull its image, or fail (kubectl "
     "get pods)",
     "{ssh} {host} true"},
    {"resolve", 'r', "its name is looked up", "the name server did not answer",
     "getent hosts {host}"},
    {"connect", 'c', "TCP connection",
     "the connection was not answered: the host is down, or a firewall drops the packets",
     "{ssh} -o ConnectTimeout=5 {host} true"},
    {"ssh banner", 'b', "its ssh server answers",
     "the host accepts connections, but its SSH server sends no banner: it is too busy "
     "(MaxStartups, many logins at once, load), or it hangs",
     "{ssh} -v {host} true"},
    {"host key", 'k', "its key is checked", "its SSH server sent a banner and then nothing",
     "{ssh} -v {host} true"},
    {"authenticate", 'a', "login",
     "its SSH server has not completed the login: it may wait for a name server or a "
     "directory service",
     "{ssh} -v {host} true"},
    {"shell", 's', "its shell starts our agent",
     "the login shell has not started the agent: a login script waits or asks a question",
     "{ssh} {host} 'echo ok'"},
    {"ship", 'h', "agent, runtime and files are sent",
     "the runtime is still on its way: the connection is slow", "{ssh} {host} 'df -h ~ /tmp'"},
    {"agent", 'g', "ready, others are not", "it is ready and waiting for the others", ""},
    {"route", 'o', "ways to the other hosts are tried",
     "it is still probing addresses of the other hosts", "horarun doctor -H {host}"},
    {"prepare", 'p', "folders and limits",
     "it is preparing its ranks: the working directory may be on a file system that does not "
     "answer",
     "{ssh} {host} 'ls -d .'"},
    {"ready", 'w', "prepared, others are not", "it is ready and waiting for the others", ""},
    {"ranks", 'x', "processes start, imports", "its ranks run", ""},
    {"rendezvous", 'm', "ranks find each other in init()",
     "its ranks are waiting for others that have not called hvd.init()", ""},
    {"first collective", 'f', "until the first one ends",
     "its ranks have joined the others and are in no collective, or in the first one", ""},
    {"work", '-', "the job runs", "its ranks work", ""},
};
static_assert(std::size(kRows) == kStages);

const StageRow& row_of(Stage stage) { return kRows[static_cast<std::size_t>(stage)]; }

constexpr std::size_t kBarWidth = 48;
// A table of a thousand hosts would scroll the errors away.
constexpr std::size_t kMostRows = 64;
constexpr std::size_t kMostHosts = 32;  // with two lines each

std::string seconds(Clock::duration time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(time).count());
  return text;
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

std::size_t longest(const std::vector<std::string>& names, std::size_t least) {
  for (const std::string& name : names) least = std::max(least, name.size());
  return least;
}

// `text` and the entries after it, in lines that fit a terminal; all but the first begin with
// `indent` spaces.
std::string with_entries(std::string text, const std::vector<std::string>& entries,
                         std::size_t indent) {
  constexpr std::size_t kWidth = 80;
  std::size_t used = text.size();
  for (const std::string& entry : entries) {
    const std::string end = &entry == &entries.back() ? "" : ",";
    if (used + 1 + entry.size() + end.size() > kWidth) {
      text += "\n" + std::string(indent, ' ') + entry + end;
      used = indent + entry.size() + end.size();
    } else {
      text += " " + entry + end;
      used += 1 + entry.size() + end.size();
    }
  }
  return text + "\n";
}

// What each letter of the bars stands for.
std::string legend(const std::set<Stage>& shown) {
  std::vector<std::string> entries;
  for (const Stage stage : shown) {
    const StageRow& row = row_of(stage);
    entries.push_back(std::string(1, row.letter) + " " + std::string(row.name) + " (" +
                      std::string(row.meaning) + ")");
  }
  return with_entries("stages of each host, times in ms:", entries, 2);
}

// A host that has reached none waits for its turn.
std::string_view name_of(std::optional<Stage> stage) {
  return stage ? stage_name(*stage) : "waiting";
}

// `text` and the hosts that are behind, the furthest behind first, as far as they fit. Whole names
// only: half of a host's name looks like another host.
template <typename Standing>
std::string with_waiting(std::string text, std::vector<std::pair<Standing, std::string>> hosts,
                         std::size_t width) {
  std::stable_sort(hosts.begin(), hosts.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const std::string more = (i == 0 ? "; " : ", ") + hosts[i].second;
    if (text.size() + more.size() > width) break;
    text += more;
  }
  return text.substr(0, width);
}

}  // namespace

void StartBoard::name_hosts(std::vector<std::string> names) {
  names_ = std::move(names);
  steps_.resize(names_.size());
  sent_.resize(names_.size());
}

void StartBoard::note_sent(int host, std::size_t bytes) {
  if (host >= 0 && host < static_cast<int>(sent_.size())) {
    sent_[static_cast<std::size_t>(host)] = bytes;
  }
}

// Once all ranks run, stages of the start that are reported late no longer count. The later stages
// (the ranks meet) extend the waterfall.
void StartBoard::reach(int host, Stage stage, std::string_view detail, TimePoint now) {
  if (host < 0 || host >= static_cast<int>(steps_.size())) return;
  if (stopped_ && stage <= Stage::kRanks) return;
  if (stopped_) end_ = std::max(end_, now);
  auto& steps = steps_[static_cast<std::size_t>(host)];
  // A stage may be reported again with changes (the next address that is tried, say): it keeps its
  // beginning, so that "for 3.2 s" counts from the first report.
  if (steps.empty() || steps.back().stage != stage) {
    steps.push_back({stage, now, std::string(detail)});
  } else {
    steps.back().detail = detail;
  }
}

void StartBoard::stop(TimePoint now) {
  if (stopped_) return;
  stopped_ = true;
  end_ = now;
}

// Ranks are meeting if one has begun to and not all have done their first work.
bool StartBoard::meeting() const {
  bool any = false;
  bool all = true;
  for (std::size_t host = 0; host < steps_.size(); ++host) {
    const Step* step = last(host);
    any |= step != nullptr && step->stage > Stage::kRanks;
    all &= step != nullptr && step->stage == Stage::kWork;
  }
  return any && !all;
}

const StartBoard::Step* StartBoard::last(std::size_t host) const {
  return steps_[host].empty() ? nullptr : &steps_[host].back();
}

// While ranks meet.
std::string StartBoard::meeting_line(TimePoint now, std::size_t width) const {
  std::vector<std::pair<Stage, std::string>> waiting;
  for (std::size_t host = 0; host < names_.size(); ++host) {
    const Step* step = last(host);
    const Stage stage = step == nullptr ? Stage::kRanks : step->stage;
    if (stage == Stage::kWork) continue;
    waiting.emplace_back(stage, names_[host] + ": " + std::string(stage_name(stage)));
  }
  return with_waiting(
      "ranks run on " + counted(names_.size(), "host") + ", " + seconds(now - start_),
      std::move(waiting), width);
}

// While hosts connect: how many are ready, and where the others stand.
std::string StartBoard::line(TimePoint now, std::size_t width) const {
  if (meeting()) return meeting_line(now, width);
  std::size_t ready = 0;
  std::vector<std::pair<TimePoint, std::string>> waiting;
  for (std::size_t host = 0; host < names_.size(); ++host) {
    const Step* step = last(host);
    if (step != nullptr && step->stage >= Stage::kAgent) ++ready;
    if (step != nullptr && step->stage >= Stage::kAgent) continue;
    const std::string stage(name_of(step == nullptr ? std::nullopt : std::optional(step->stage)));
    waiting.emplace_back(step == nullptr ? start_ : step->since, names_[host] + ": " + stage);
  }
  std::string text = std::to_string(ready) + " of " + counted(names_.size(), "host") + " ready, " +
                     seconds(now - start_);
  const Step* first = names_.empty() ? nullptr : last(0);
  // When all hosts are ready, show the stage that they are in.
  if (waiting.empty() && first != nullptr) text += "; " + std::string(stage_name(first->stage));
  return with_waiting(std::move(text), std::move(waiting), width);
}

// For a start that timed out.
std::string StartBoard::table(TimePoint now) const {
  const std::string all_more = std::to_string(names_.size()) + " more";
  const std::size_t width = longest(names_, names_.size() > 16 ? all_more.size() : 4) + 2;
  std::string text =
      "  " + padded("host", width) + padded("stage", 14) + padded("for", 10) + "last sign\n";
  std::map<std::optional<Stage>, int> folded;
  std::size_t rows = 0;
  for (std::size_t host = 0; host < names_.size(); ++host) {
    const Step* step = last(host);
    const std::optional<Stage> stage = step == nullptr ? std::nullopt : std::optional(step->stage);
    // Large jobs: hosts that are ready are only counted, so that the problems stand out.
    const bool is_ready = names_.size() > 16 && stage >= Stage::kAgent;
    if (is_ready || rows == kMostRows) {
      ++folded[stage];
      continue;
    }
    ++rows;
    text += "  " + padded(names_[host], width) + padded(std::string(name_of(stage)), 14) +
            padded(seconds(now - (step == nullptr ? start_ : step->since)), 10) +
            (step == nullptr ? "" : step->detail) + "\n";
  }
  for (const auto& [stage, count] : folded) {
    text +=
        "  " + padded(std::to_string(count) + " more", width) + std::string(name_of(stage)) + "\n";
  }
  return text;
}

// One bar per host on a common scale, in which the slowest host of each stage stands out. Only for
// a start that is over, since the scale needs its end.
std::string StartBoard::waterfall() const {
  if (!stopped_ || names_.empty()) return {};
  // Never 0: it divides.
  const double whole = std::max(fractional_ms(end_ - start_), 0.001);
  const std::size_t width = longest(names_, 4) + 2;
  std::string text;
  std::set<Stage> shown;
  for (std::size_t host = 0; host < std::min(names_.size(), kMostHosts); ++host) {
    std::string bar(kBarWidth, ' ');
    std::vector<std::string> figures;
    const auto& steps = steps_[host];
    double shipping = 0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const TimePoint until = i + 1 < steps.size() ? steps[i + 1].since : end_;
      const double from = fractional_ms(steps[i].since - start_);
      const double to = fractional_ms(until - start_);
      const auto column = [whole](double at) {
        return std::min(static_cast<std::size_t>(at / whole * kBarWidth), kBarWidth);
      };
      // Each stage gets at least one column, or a fast one would be invisible.
      for (std::size_t c = column(from);
           c < std::max(column(to), column(from) + 1) && c < kBarWidth; ++c) {
        bar[c] = row_of(steps[i].stage).letter;
      }
      shown.insert(steps[i].stage);
      if (steps[i].stage == Stage::kShip) shipping += to - from;
      char figure[64];
      std::snprintf(figure, sizeof figure, "%s %.1f",
                    std::string(stage_name(steps[i].stage)).c_str(), to - from);
      figures.emplace_back(figure);
    }
    if (sent_[host] > 0) {
      char figure[96];
      std::snprintf(figure, sizeof figure, "sent %.1f MB (ship is %.0f %% of the start)",
                    static_cast<double>(sent_[host]) / 1e6, 100 * shipping / whole);
      figures.emplace_back(figure);
    }
    text += with_entries(padded(names_[host], width) + "|" + bar + "|", figures, width + 1);
  }
  if (names_.size() > kMostHosts) {
    text += "and " + std::to_string(names_.size() - kMostHosts) + " more hosts\n";
  }
  char scale[96];
  std::snprintf(scale, sizeof scale, "%s 0 ms%*s%.1f ms\n", std::string(width, ' ').c_str(),
                static_cast<int>(kBarWidth) - 8, "", whole);
  return text + scale + legend(shown);
}

std::string_view stage_name(Stage stage) { return row_of(stage).name; }

StageAdvice stage_advice(Stage stage) { return {row_of(stage).cause, row_of(stage).command}; }

// Explains a start that timed out: the table, then for each stage the likely cause and a command to
// try, with one host as the example.

std::string start_timeout_text(const StartBoard& board, StartBoard::TimePoint now,
                               const std::string& reach) {
  struct Standing {
    std::string first;
    int count = 0;
  };
  std::map<Stage, Standing> standing;
  int not_begun = 0;
  for (std::size_t host = 0; host < board.names().size(); ++host) {
    const auto& steps = board.steps()[host];
    if (steps.empty()) {
      ++not_begun;
      continue;
    }
    const Stage stage = steps.back().stage;
    // These hosts wait for the others; they are not the problem.
    if (stage == Stage::kAgent || stage >= Stage::kReady) continue;
    auto& entry = standing[stage];
    if (entry.count++ == 0) entry.first = board.names()[host];
  }
  std::string text = board.table(now);
  for (const auto& [stage, entry] : standing) {
    const StageAdvice advice = stage_advice(stage);
    text += "  " + entry.first;
    if (entry.count > 1) text += " and " + std::to_string(entry.count - 1) + " more";
    text += " (" + std::string(stage_name(stage)) + "): " + std::string(advice.cause) + "\n";
    // Hosts that dial horarun cannot be tried from here.
    const bool has_way = !reach.empty() || advice.command.find("{ssh}") == std::string_view::npos;
    if (!advice.command.empty() && has_way) {
      text += "    try: " + fill_command(advice.command, reach, Host{entry.first, "", {}}) + "\n";
    }
  }
  if (not_begun > 0) {
    text += "  " + counted(not_begun, "host") + (not_begun == 1 ? " has" : " have") +
            " not begun to connect: --fan-out limits how many do at a time\n";
  }
  return text;
}

}  // namespace hora::launcher
