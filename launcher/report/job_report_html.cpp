// SPDX-License-Identifier: Apache-2.0
// The page of --report FILE.html: no script, nothing loaded from elsewhere.  [pure]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "launcher/plan/plan.h"
#include "launcher/report/job_report.h"
#include "launcher/report/outcome_text.h"
#include "launcher/report/resource_usage.h"
#include "launcher/text/text.h"
#include "launcher/text/units.h"
#include "launcher/text/user_input.h"
#include "rendezvous/base/html.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/time.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kColours[] = {
    "#9aa2ad", "#7a869a", "#5b7db1", "#4a9bb5", "#8064a2", "#a0527a", "#b86e3d", "#9a8b2f",
    "#4c8c4a", "#2f8f8b", "#3f6fb5", "#6f9e3f", "#1b6e3c", "#b8860b", "#8b5a2b", "#2e5984"};
static_assert(std::size(kColours) == kStages);

// A page of 80,000 rows opens slowly and shows nothing: of that many, a table has the most
// important.
constexpr std::size_t kMostHtmlRows = 256;

// Numbers below `count`, ascending: those with the smallest keys.
template <typename KeyOf>
std::vector<std::size_t> rows_to_show(std::size_t count, const KeyOf& key_of) {
  std::vector<std::size_t> rows(count);
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  if (count <= kMostHtmlRows) return rows;
  std::stable_sort(rows.begin(), rows.end(),
                   [&key_of](std::size_t a, std::size_t b) { return key_of(a) < key_of(b); });
  rows.resize(kMostHtmlRows);
  std::sort(rows.begin(), rows.end());
  return rows;
}

// "256 of 80000 ranks: WHICH"; nothing where the table has all.
std::string note_of_rows(std::size_t count, std::string_view things, std::string_view which) {
  if (count <= kMostHtmlRows) return "";
  return "<p>" + std::to_string(kMostHtmlRows) + " of " + std::to_string(count) + " " +
         std::string(things) + ": " + std::string(which) + "</p>\n";
}

std::string ms_text(double ms) {
  char text[48];
  std::snprintf(text, sizeof text, ms < 9.95 ? "%.1f ms" : "%.0f ms", ms);
  return text;
}

// `look` is an attribute that gives the colour.
std::string bar(double from, double to, double whole, const std::string& look,
                const std::string& label) {
  char text[128];
  std::snprintf(text, sizeof text, "<span style=\"left:%.2f%%;width:%.2f%%;", 100 * from / whole,
                std::max(100 * (to - from) / whole, 0.3));
  return text + look + " title=\"" + html_escaped(label) + "\"></span>";
}

std::string background(Stage stage) {
  return "background:" + std::string(kColours[static_cast<std::size_t>(stage)]) + "\"";
}

// What the colours of the bars are.
std::string legend(const StartBoard& board, const std::vector<std::size_t>& hosts) {
  std::set<Stage> seen;
  for (const std::size_t host : hosts) {
    for (const StartBoard::Step& step : board.steps()[host]) seen.insert(step.stage);
  }
  std::string out = "<p>";
  for (const Stage stage : seen) {
    out += "<span style=\"white-space:nowrap\"><i style=\"" + background(stage) + "></i>" +
           html_escaped(stage_name(stage)) + "</span> ";
  }
  return out + "</p>\n";
}

std::string waterfall(const JobReport& report) {
  const StartBoard& board = *report.board;
  const double whole = std::max(fractional_ms(board.end(board.start()) - board.start()), 0.001);
  const std::size_t hosts = board.names().size();
  // Those that were not ready come first, then the last ones that became ready.
  const auto key_of = [&board](std::size_t host) {
    const auto& steps = board.steps()[host];
    if (steps.empty()) return std::pair(-1, StartBoard::TimePoint::duration{});
    return std::pair(static_cast<int>(steps.back().stage), -steps.back().since.time_since_epoch());
  };
  const auto rows = rows_to_show(hosts, key_of);
  const std::string scale = "from 0 to " + ms_text(whole);
  std::string out = html_section("Start") +
                    note_of_rows(hosts, "hosts", "those that are furthest behind, or came last.") +
                    "<table>\n<tr><th>host</th><th style=\"width:75%\">" + scale + "</th></tr>\n";
  for (const std::size_t host : rows) {
    std::string texts;
    out += "<tr><td data-is=\"host\">" + html_escaped(board.names()[host]) + "</td><td data-is=\"" +
           scale + "\"><div class=\"lane\">";
    const auto& steps = board.steps()[host];
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const double from = fractional_ms(steps[i].since - board.start());
      const double to =
          i + 1 < steps.size() ? fractional_ms(steps[i + 1].since - board.start()) : whole;
      const std::string label = std::string(stage_name(steps[i].stage)) + " " + ms_text(to - from);
      out += bar(from, to, whole, background(steps[i].stage), label);
      texts += (i > 0 ? ", " : "") + label +
               (steps[i].detail.empty() ? "" : " (" + steps[i].detail + ")");
    }
    if (board.sent(host) > 0) {
      texts += "; " + bytes_text(static_cast<std::int64_t>(board.sent(host))) + " sent";
    }
    out += "</div><small>" + html_escaped(texts) + "</small></td></tr>\n";
  }
  return out + "</table>\n" + legend(board, rows);
}

// A rank that we ended, or that failed because another one had left, is neither good nor bad.
std::string_view class_of(const RankExit& exit) {
  if (!failed(exit)) return "ok";
  return exit.terminated_by_us || rank_that_left(exit.last_stderr) ? "ended" : "bad";
}

std::string how_text(const RankExit& exit) {
  std::string how =
      exit.signal != 0 ? signal_name(exit.signal) : "code " + std::to_string(exit.exit_code);
  if (exit.terminated_by_us) how += ", ended by us";
  if (const auto left = rank_that_left(exit.last_stderr)) {
    how += ", because of rank " + std::to_string(*left);
  }
  how = html_escaped(how);
  if (!exit.hint.empty()) how += "<br>" + html_escaped(exit.hint);
  // The operation that it was in, and for how long: it waited for ranks that were not in it.
  if (!exit.last_operation.empty()) how += "<br>" + html_escaped(exit.last_operation);
  return how;
}

// Two cells of a row.
std::string gpu_cells(const RankCounters& counters) {
  const std::string use =
      counters.gpu_mean_percent < 0 ? "" : std::to_string(counters.gpu_mean_percent) + "%";
  const std::string memory =
      counters.gpu_count == 0
          ? ""
          : bytes_text(counters.gpu_peak_bytes) + " of " + bytes_text(counters.gpu_total_bytes);
  return "<td data-is=\"GPU use\">" + use + "</td><td data-is=\"peak GPU memory\">" + memory +
         "</td>";
}

// Each rank from the first end to the last: the first one is what one looks for.
std::string lanes(const JobReport& report) {
  if (report.outcome->exits.empty()) return "";
  std::int64_t first = INT64_MAX;
  std::int64_t last = 0;
  std::vector<const RankExit*> exits;
  std::vector<int> ranks;
  for (const auto& [rank, exit] : report.outcome->exits) {
    exits.push_back(&exit);
    ranks.push_back(rank);
    if (exit.clock_ns == 0) continue;
    first = std::min(first, exit.clock_ns);
    last = std::max(last, exit.clock_ns);
  }
  const double whole = std::max(static_cast<double>(last - first) / 1e6, 1.0) * 1.1;
  const auto key_of = [&](std::size_t row) {
    return std::pair(class_of(*exits[row]) != "bad", exits[row]->clock_ns);
  };
  const bool has_gpus =
      std::ranges::any_of(exits, [](const RankExit* exit) { return exit->counters.gpu_count > 0; });
  std::string out =
      html_section("Ranks") +
      note_of_rows(exits.size(), "ranks", "those that failed, then the first to end.") +
      "<table>\n<tr><th>rank</th><th>ended</th><th>peak memory</th><th>CPU time</th>" +
      (has_gpus ? "<th>GPU use</th><th>peak GPU memory</th>" : "") +
      "<th style=\"width:40%\">after the first one that ended</th></tr>\n";
  for (const std::size_t row : rows_to_show(exits.size(), key_of)) {
    const RankExit& exit = *exits[row];
    const std::string look(class_of(exit));
    char cpu[48];
    std::snprintf(cpu, sizeof cpu, "%.2f s",
                  static_cast<double>(exit.user_time_us + exit.system_time_us) / 1e6);
    const double at = exit.clock_ns == 0 ? 0 : static_cast<double>(exit.clock_ns - first) / 1e6;
    const std::string after = ms_text(at);
    out += "<tr><td data-is=\"rank\">" + std::to_string(ranks[row]) +
           html_escaped(program_label(report.programs, ranks[row])) +
           "</td><td data-is=\"ended\" class=\"" + look + "\">" + how_text(exit) +
           "</td><td data-is=\"peak memory\">" + bytes_text(exit.max_rss_bytes) +
           "</td><td data-is=\"CPU time\">" + cpu + "</td>" +
           (has_gpus ? gpu_cells(exit.counters) : "") +
           "<td data-is=\"after the first one that ended\"><div class=\"lane\">" +
           bar(0, std::max(at, whole / 100), whole, "\" class=\"bar-" + look + "\"", after) +
           "</div><small>" + after + "</small></td></tr>\n";
  }
  return out + "</table>\n";
}

// What a slow job is looked up for.
std::string delays(const JobReport& report) {
  std::string out;
  for (const RankDelay& delay : delays_of(report)) {
    // The bar compares the ranks at a glance; the text has the figures.
    const double percent = 100 * delay.share;
    const std::string text = delay_text(delay);
    out += "<p>" + html_escaped(text) + "</p><div class=\"lane\">" +
           bar(0, percent, 100, "\" class=\"bar-late\"", text) + "</div>\n";
  }
  if (!out.empty()) return html_section("Who made the others wait") + out;
  const bool any = std::ranges::any_of(
      report.outcome->exits, [](const auto& exit) { return exit.second.counters.collectives > 0; });
  if (!any || report.outcome->elastic || report.outcome->exits.size() < 2) return "";
  return html_section("Who made the others wait") +
         "<p>No rank: each was late for less than 1% of the time.</p>\n";
}

// A line over the time of the job, from 0 to the largest value.
std::string chart(const JobReport& report, const std::string& title,
                  const std::function<double(const UsagePoint&)>& value_of,
                  const std::function<std::string(double)>& text_of) {
  double largest = 0;
  for (const UsagePoint& point : report.usage) largest = std::max(largest, value_of(point));
  if (largest <= 0) return "";
  const double last = report.usage.back().at_s;
  std::string points;
  for (const UsagePoint& point : report.usage) {
    char text[48];
    std::snprintf(text, sizeof text, "%.2f,%.2f ", 100 * point.at_s / last,
                  30 - 29 * value_of(point) / largest);
    points += text;
  }
  return "<p>" + html_escaped(title) + ": at most " + text_of(largest) +
         "</p><svg class=\"chart\" viewBox=\"0 0 100 30\" preserveAspectRatio=\"none\"><polyline "
         "points=\"" +
         points + "\"/></svg>\n";
}

// What grows until memory runs out, or stands still while the job seems to run, shows here first.
// One point alone makes no line.
std::string usage(const JobReport& report) {
  if (report.usage.size() < 2) return "";
  const auto bytes = [](double value) { return bytes_text(static_cast<std::int64_t>(value)); };
  const auto cpus = [](double percent) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f CPUs", percent / 100);
    return std::string(text);
  };
  const std::chrono::seconds last(nearest(report.usage.back().at_s));
  return html_section("Over time") + "<p>The " + format_duration(last) +
         " since all ranks had started, from left to right.</p>\n" +
         chart(
             report, "Memory of all ranks",
             [](const UsagePoint& p) { return static_cast<double>(p.rss_bytes); }, bytes) +
         chart(
             report, "Memory of the largest rank",
             [](const UsagePoint& p) { return static_cast<double>(p.largest_rss_bytes); }, bytes) +
         chart(
             report, "CPU of all ranks", [](const UsagePoint& p) { return p.cpu_percent; }, cpus) +
         chart(
             report, "GPUs of all ranks, their mean",
             [](const UsagePoint& p) { return std::max(p.gpu_percent, 0); },
             [](double value) { return std::to_string(nearest(value)) + "%"; }) +
         chart(
             report, "Memory of the GPUs of all ranks",
             [](const UsagePoint& p) { return static_cast<double>(p.gpu_bytes); }, bytes) +
         chart(
             report, "Bytes of collectives of all ranks",
             [](const UsagePoint& p) { return p.bytes_per_s; },
             [](double value) {
               return format_size(static_cast<std::uint64_t>(value)) + " bytes/s";
             });
}

// The lines of a text that say what to do about it.
std::vector<std::string> fixes_of(std::string_view text) {
  constexpr std::string_view kFix = "  what to do: ";
  std::vector<std::string> fixes;
  for (const std::string_view line : split(text, '\n')) {
    if (line.starts_with(kFix)) fixes.emplace_back(line.substr(kFix.size()));
    if (line.starts_with("  try: ")) fixes.emplace_back(line.substr(2));
  }
  return fixes;
}

std::string fix_text(const JobReport& report) {
  std::vector<std::string> fixes = fixes_of(report.text);
  if (report.outcome->cause && !report.outcome->cause->failure.advice.empty()) {
    fixes.insert(fixes.begin(), report.outcome->cause->failure.advice);
  }
  if (fixes.empty()) return {};
  return "<p class=\"fix\"><b>What to do:</b> " + html_escaped(join(fixes, "\n")) + "</p>\n";
}

// The ranks' last lines have a place of their own on the page.
std::string without_last_lines(std::string_view text) {
  std::string out;
  bool is_quoted = false;
  for (const std::string_view line : split(text, '\n')) {
    is_quoted = line.ends_with(" on stderr:") || line.ends_with(" on its terminal (--pty):") ||
                (is_quoted && line.starts_with("    "));
    if (!is_quoted) out += std::string(line) + "\n";
  }
  return out.substr(0, out.size() - 1);
}

// Those of the rank that is named first, then of the others.
std::string tails(const JobReport& report) {
  const auto& exits = report.outcome->exits;
  const auto& cause = report.outcome->cause;
  const int first =
      cause && cause->kind == Cause::Kind::kRank ? rank_reported_first(cause->exit, exits) : -1;
  std::string first_rank;
  std::string others;
  std::size_t shown = 0;
  for (const auto& [rank, exit] : exits) {
    if (exit.last_stderr.empty()) continue;
    if (++shown > kMostHtmlRows && rank != first) continue;
    (rank == first ? first_rank : others) += std::string("<details") +
                                             (rank == first ? " open" : "") + "><summary>rank " +
                                             std::to_string(rank) + "</summary><pre>" +
                                             html_escaped(exit.last_stderr) + "</pre></details>\n";
  }
  return shown == 0 ? "" : html_section("Last lines") + first_rank + others;
}

// All programs of the job.
std::string title_of(const JobReport& report) {
  if (report.programs.empty()) return quote_shell_words(without_secrets(report.command));
  std::vector<std::vector<std::string>> commands;
  for (const Program& program : report.programs) {
    commands.push_back(without_secrets(program.command));
  }
  return programs_text(commands);
}

}  // namespace

std::string report_html(const JobReport& report) {
  const int code = report.exit_code;
  std::string out;
  char times[96];
  std::snprintf(times, sizeof times, ", %.2f s, ended %s", report.seconds, report.ended_at.c_str());
  const std::string size = counted(static_cast<std::uint64_t>(report.plan->world_size), "rank") +
                           " on " + counted(report.plan->hosts.size(), "host");
  const std::string engine = report.engine ? "<br>" + html_escaped(report.engine->text) : "";
  out += "<h1>" + html_escaped(title_of(report)) + "</h1>\n<p>" + size + times + engine +
         "</p>\n<p class=\"" + (code == 0 ? "ok" : "bad") + "\">exit code " + std::to_string(code) +
         "</p>\n" + fix_text(report);
  if (!report.text.empty())
    out += "<pre>" + html_escaped(without_last_lines(report.text)) + "</pre>\n";
  out += tails(report);
  if (!report.failed_attempts.empty()) {
    out += html_section("Failed attempts") + "<pre>";
    for (const RestartPolicy::Attempt& attempt : report.failed_attempts) {
      out += html_escaped(attempt.cause) + "\n";
    }
    out += "</pre>\n";
  }
  if (!report.chaos.empty()) {
    out += html_section("Chaos") + "<pre>";
    for (const ChaosStrike& strike : report.chaos) out += html_escaped(strike_text(strike)) + "\n";
    out += "</pre>\n";
  }
  out += delays(report) + lanes(report) + usage(report) + waterfall(report);
  if (!report.stacks.empty())
    out += html_section("Stacks") + "<pre>" + html_escaped(report.stacks) + "</pre>\n";
  out +=
      "<p>Hora " + html_escaped(report.version) + ", job " + html_escaped(report.job_id) + "</p>\n";
  return report.secrets.clean(html_page("horarun " + report.job_id.substr(0, 8), out));
}

}  // namespace hora::launcher
