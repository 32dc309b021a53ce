// SPDX-License-Identifier: Apache-2.0
// Columns have fixed widths, and every number a short form that fits: what is watched for minutes
// must not move.
#include "launcher/control/top_text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "launcher/text/text.h"
#include "launcher/text/units.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kTopWidth = 80;
constexpr double kLeastDelay = 0.01;  // of the time

template <typename... Values>
std::string formatted(const char* format, Values... values) {
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

// Numbers stand to the right, so that their sizes can be compared at a glance.
std::string right(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

std::string percent(double share) { return formatted("%.0f%%", share * 100); }

std::string bytes_text(double bytes) {
  return format_size(static_cast<std::uint64_t>(std::max(bytes, 0.0)));
}

// Three digits or so, and "k" for thousands: "19.2", "1043", "12.3k".
std::string count_text(double value) {
  if (value >= 1e5) return formatted("%.0fk", value / 1e3);
  if (value >= 1e4) return formatted("%.1fk", value / 1e3);
  return formatted(value >= 100 ? "%.0f" : "%.1f", value);
}

std::string since_text(std::int64_t ms) {
  if (ms < 0) return "-";
  if (ms < 10'000) return formatted("%.1fs", static_cast<double>(ms) / 1e3);
  constexpr std::int64_t kDay = 24 * 3600;
  const std::int64_t seconds = ms / 1000;
  if (seconds < 1000) return std::to_string(seconds) + "s";
  return seconds < 2 * kDay ? std::to_string(seconds / 60) + "m"
                            : std::to_string(seconds / kDay) + "d";
}

struct Row {
  std::string rank, host, delays, waits, collectives, bytes, last, cpu, memory;
  std::string gpu = "", gpu_memory = "";  // both empty in a job without GPUs
};

std::string row_text(const Row& row) {
  std::string out = right(row.rank, 6) + " " + column(shortened(row.host, 12), 14) +
                    right(row.delays, 6) + right(row.waits, 6) + right(row.collectives, 8) +
                    right(row.bytes, 8) + right(row.last, 6) + right(row.cpu, 6) +
                    right(row.memory, 7);
  if (!row.gpu.empty()) out += right(row.gpu, 5) + right(row.gpu_memory, 7);
  return out + "\n";
}

// For a job that has GPUs: `gpus` of them are a rank's, or all.
void add_gpus(Row& row, int gpus, int gpu_percent, std::int64_t gpu_bytes) {
  row.gpu = gpu_percent < 0 ? "-" : percent(gpu_percent / 100.0);
  row.gpu_memory = gpus == 0 ? "-" : bytes_text(static_cast<double>(gpu_bytes));
}

Row row_of(const RankFigures& rank) {
  Row row;
  row.rank = std::to_string(rank.rank);
  row.host = rank.host;
  row.delays = rank.uses_runtime ? percent(rank.delay_share) : "-";
  row.waits = rank.uses_runtime ? percent(rank.wait_share) : "-";
  row.collectives = rank.uses_runtime ? count_text(rank.collectives_per_s) : "-";
  row.bytes = rank.uses_runtime ? bytes_text(rank.bytes_per_s) : "-";
  row.last = since_text(rank.last_ms);
  row.cpu = percent(rank.cpu_percent / 100);
  row.memory = bytes_text(static_cast<double>(rank.rss_bytes));
  return row;
}

// Of the ranks that are on top: what they do says more than how long it takes.
std::string last_lines(const JobFigures& figures) {
  constexpr std::size_t kRankWidth = 6;
  std::string out;
  for (std::size_t i = 0; i < std::min(figures.worst.size(), kTopLines); ++i) {
    const RankFigures& rank = figures.worst[i];
    if (rank.last_line.empty()) continue;
    out += right(std::to_string(rank.rank), kRankWidth) + " " +
           shortened(visible_line(rank.last_line), kTopWidth - kRankWidth - 1) + "\n";
  }
  return out.empty() ? out : right("RANK", kRankWidth) + " LAST LINE OF OUTPUT\n" + out;
}

}  // namespace

std::string top_text(const JobSummary& job, const JobFigures& figures) {
  std::string head = "job " + std::to_string(job.job) + "  " + job.state + " for " +
                     age_text(job.age_s) + "  " +
                     counted(static_cast<std::uint64_t>(job.ranks), "rank") + " on " +
                     counted(job.hosts.size(), "host") + "  ";
  if (head.size() + 10 < kTopWidth) head += shortened(command_text(job), kTopWidth - head.size());
  const bool has_gpus = figures.gpus > 0;
  Row titles{"RANK", "HOST", "DELAYS", "WAITS", "COLL/S", "BYTES/S", "LAST", "CPU", "MEMORY"};
  if (has_gpus) {
    titles.gpu = "GPU";
    titles.gpu_memory = "GPUMEM";
  }
  std::string out = head + "\n" + row_text(titles);
  const std::size_t rows = std::min(figures.worst.size(), kTopRows);
  for (std::size_t i = 0; i < rows; ++i) {
    const RankFigures& rank = figures.worst[i];
    Row row = row_of(rank);
    if (has_gpus) add_gpus(row, rank.gpus, rank.gpu_percent, rank.gpu_bytes);
    out += row_text(row);
  }
  Row all;
  all.rank = "all";
  all.host = std::to_string(figures.ranks) + " ranks";
  all.collectives = count_text(figures.collectives_per_s);
  all.bytes = bytes_text(figures.bytes_per_s);
  all.cpu = percent(figures.cpu_percent / 100);
  all.memory = bytes_text(static_cast<double>(figures.rss_bytes));
  if (has_gpus) add_gpus(all, figures.gpus, figures.gpu_percent, figures.gpu_bytes);
  return out + row_text(all) + last_lines(figures);
}

// Without collectives their figures say nothing: the ranks use no runtime of ours, or have not
// begun.
std::string progress_text(const JobFigures& figures, std::chrono::milliseconds ran,
                          std::size_t width) {
  std::string text = format_duration(std::chrono::floor<std::chrono::seconds>(ran)) + ", " +
                     counted(static_cast<std::uint64_t>(figures.ranks), "rank") + ", ";
  if (figures.collectives_per_s > 0) {
    text += count_text(figures.collectives_per_s) + " collectives/s, " +
            bytes_text(figures.bytes_per_s) + "/s, ";
  }
  text += "CPU " + percent(figures.cpu_percent / 100) + ", memory " +
          bytes_text(static_cast<double>(figures.rss_bytes));
  if (figures.gpu_percent >= 0) text += ", GPU " + percent(figures.gpu_percent / 100.0);
  if (figures.gpus > 0) {
    text += ", GPU memory " + bytes_text(static_cast<double>(figures.gpu_bytes));
  }
  if (!figures.worst.empty() && figures.worst.front().delay_share >= kLeastDelay) {
    const RankFigures& worst = figures.worst.front();
    text = "rank " + std::to_string(worst.rank) + " on " + worst.host + " delays the others for " +
           percent(worst.delay_share) + " of the time; " + text;
  }
  return width == 0 ? text : shortened(text, width);
}

}  // namespace hora::launcher
