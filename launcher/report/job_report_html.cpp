// SPDX-License-Identifier: Apache-2.0
// The page of --report FILE.html: no script, nothing loaded from elsewhere.  [pure]
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <utility>
#include <vector>

#include "launcher/plan/plan.h"
#include "launcher/report/job_report.h"
#include "launcher/report/outcome_text.h"
#include "launcher/report/program_label.h"
#include "launcher/report/resource_usage.h"
#include "launcher/text/user_input.h"
#include "launcher/text/text.h"
#include "rendezvous/base/time.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kStyle =
    "body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 "
    "1em;color:#222}"
    "h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2em}pre{background:#f4f4f4;padding:.8em;"
    "overflow:auto}"
    ".bad{color:#b00020}.ok{color:#1b6e3c}table{border-collapse:collapse;width:100%}"
    "td,th{text-align:left;padding:.2em .6em;border-bottom:1px solid #e4e4e4;vertical-align:top}"
    ".lane{position:relative;height:1.2em;background:#f4f4f4}.lane "
    "span{position:absolute;top:0;height:100%;"
    "overflow:hidden;white-space:nowrap;font-size:.75em;color:#fff;padding-left:2px;box-sizing:"
    "border-box}"
    "@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}pre,.lane{background:#"
    "262626}"
    "td,th{border-color:#333}.bad{color:#ff6b81}.ok{color:#6fd08c}}";

constexpr std::string_view kColours[] = {
    "#9aa2ad", "#7a869a", "#5b7db1", "#4a9bb5", "#8064a2", "#a0527a", "#b86e3d", "#9a8b2f",
    "#4c8c4a", "#2f8f8b", "#3f6fb5", "#6f9e3f", "#1b6e3c", "#b8860b", "#8b5a2b", "#2e5984"};
static_assert(std::size(kColours) == kStages);

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') {
      out += '?';
    } else {
      out += c;
    }
  }
  return out;
}

// A page of 80,000 rows opens slowly and shows nothing: of that many, a table has the most telling.
constexpr std::size_t kMostRows = 256;

// Numbers below `count`, ascending: those with the smallest keys.
template <typename KeyOf>
std::vector<std::size_t> rows_to_show(std::size_t count, const KeyOf& key_of) {
  std::vector<std::size_t> rows(count);
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  if (count <= kMostRows) return rows;
  std::stable_sort(rows.begin(), rows.end(),
                   [&key_of](std::size_t a, std::size_t b) { return key_of(a) < key_of(b); });
  rows.resize(kMostRows);
  std::sort(rows.begin(), rows.end());
  return rows;
}

// "256 of 80000 ranks: WHICH"; nothing where the table has all.
std::string note_of_rows(std::size_t count, std::string_view things, std::string_view which) {
  if (count <= kMostRows) return "";
  return "<p>" + std::to_string(kMostRows) + " of " + std::to_string(count) + " " +
         std::string(things) + ": " + std::string(which) + "</p>\n";
}

std::string section(std::string_view title) { return "<h2>" + escaped(title) + "</h2>\n"; }

std::string bar(double from, double to, double whole, std::string_view colour,
                std::string_view label) {
  char text[128];
  std::snprintf(
      text, sizeof text, "<span style=\"left:%.2f%%;width:%.2f%%;background:%s\" title=\"",
      100 * from / whole, std::max(100 * (to - from) / whole, 0.3), std::string(colour).c_str());
  char time[48];
  std::snprintf(time, sizeof time, " %.1f ms", to - from);
  return text + escaped(label) + time + "\">" + escaped(label) + "</span>";
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
  std::string out = section("Start") +
                    note_of_rows(hosts, "hosts", "those that had come least far, or came last.") +
                    "<table>\n";
  for (const std::size_t host : rows_to_show(hosts, key_of)) {
    out += "<tr><td style=\"width:12em\">" + escaped(board.names()[host]) +
           "</td><td><div class=\"lane\">";
    const auto& steps = board.steps()[host];
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const double from = fractional_ms(steps[i].since - board.start());
      const double to =
          i + 1 < steps.size() ? fractional_ms(steps[i + 1].since - board.start()) : whole;
      out += bar(from, to, whole, kColours[static_cast<std::size_t>(steps[i].stage)],
                 stage_name(steps[i].stage));
    }
    out += "</div></td></tr>\n";
  }
  char text[96];
  std::snprintf(text, sizeof text, "</table>\n<p>0 to %.1f ms.</p>\n", whole);
  return out + text;
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
  const auto is_bad = [](const RankExit& exit) { return failed(exit) && !exit.terminated_by_us; };
  const auto key_of = [&](std::size_t row) {
    return std::pair(!is_bad(*exits[row]), exits[row]->clock_ns);
  };
  std::string out =
      section("Ranks") +
      note_of_rows(exits.size(), "ranks", "those that failed, then the first to end.") +
      "<table>\n<tr><th>rank</th><th>ended</th><th>peak memory</th><th>CPU</th>"
      "<th style=\"width:45%\">its end, from the first one on</th></tr>\n";
  for (const std::size_t row : rows_to_show(exits.size(), key_of)) {
    const RankExit& exit = *exits[row];
    const int rank = ranks[row];
    const bool bad = is_bad(exit);
    std::string how =
        exit.signal != 0 ? signal_name(exit.signal) : "code " + std::to_string(exit.exit_code);
    if (exit.terminated_by_us) how += ", ended by us";
    char cpu[48];
    std::snprintf(cpu, sizeof cpu, "%.2f s",
                  static_cast<double>(exit.user_time_us + exit.system_time_us) / 1e6);
    const double at = exit.clock_ns == 0 ? 0 : static_cast<double>(exit.clock_ns - first) / 1e6;
    out += "<tr><td>" + std::to_string(rank) + escaped(program_label(report.programs, rank)) +
           "</td><td class=\"" + (bad ? "bad" : "ok") + "\">" + escaped(how) +
           (exit.hint.empty() ? "" : "<br>" + escaped(exit.hint)) + "</td><td>" +
           bytes_text(exit.max_rss_bytes) + "</td><td>" + cpu + "</td><td><div class=\"lane\">" +
           bar(0, std::max(at, whole / 100), whole, bad ? "#b00020" : "#4c8c4a", "") +
           "</div></td></tr>\n";
  }
  return out + "</table>\n";
}

std::string tails(const JobReport& report) {
  std::string out;
  std::size_t shown = 0;
  for (const auto& [rank, exit] : report.outcome->exits) {
    if (exit.last_stderr.empty()) continue;
    const bool is_cause = report.outcome->cause &&
                          report.outcome->cause->kind == Cause::Kind::kRank &&
                          report.outcome->cause->exit.rank == rank;
    if (++shown > kMostRows && !is_cause) continue;
    out += std::string("<details") + (is_cause ? " open" : "") + "><summary>rank " +
           std::to_string(rank) + "</summary><pre>" + escaped(exit.last_stderr) +
           "</pre></details>\n";
  }
  return out.empty() ? out : section("Last lines on stderr") + out;
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
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width\"><title>horarun " +
      escaped(report.job_id.substr(0, 8)) + "</title><style>" + std::string(kStyle) +
      "</style></head><body>\n";
  char times[96];
  std::snprintf(times, sizeof times, "%d ranks on %zu hosts, %.2f s, ended %s",
                report.plan->world_size, report.plan->hosts.size(), report.seconds,
                report.ended_at.c_str());
  const std::string engine = report.engine ? "<br>" + escaped(report.engine->text) : "";
  out += "<h1>" + escaped(title_of(report)) + "</h1>\n<p>" + times + engine + "</p>\n<p class=\"" +
         (code == 0 ? "ok" : "bad") + "\">exit code " + std::to_string(code) + "</p>\n";
  if (!report.text.empty()) out += "<pre>" + escaped(report.text) + "</pre>\n";
  if (!report.failed_attempts.empty()) {
    out += section("Failed attempts") + "<pre>";
    for (const RestartPolicy::Attempt& attempt : report.failed_attempts) {
      out += escaped(attempt.cause) + "\n";
    }
    out += "</pre>\n";
  }
  if (!report.chaos.empty()) {
    out += section("Chaos") + "<pre>";
    for (const ChaosStrike& strike : report.chaos) out += escaped(strike_text(strike)) + "\n";
    out += "</pre>\n";
  }
  out += waterfall(report) + lanes(report) + tails(report);
  if (!report.stacks.empty())
    out += section("Stacks") + "<pre>" + escaped(report.stacks) + "</pre>\n";
  return report.secrets.clean(out + "<p>Hora " + escaped(report.version) + ", job " +
                              escaped(report.job_id) + "</p></body></html>\n");
}

}  // namespace hora::launcher
