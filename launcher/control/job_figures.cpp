// SPDX-License-Identifier: Apache-2.0
// The samples of the hosts come at slightly different times, so waits are compared as shares of the
// time between the two samples of each rank, and not as lengths of time.
#include "launcher/control/job_figures.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <utility>

#include <nlohmann/json.hpp>

namespace hora::launcher {

namespace {

using Json = nlohmann::ordered_json;

RankFigures rank_figures(const TimedSample& before, const TimedSample& now) {
  const double seconds = std::max(std::chrono::duration<double>(now.at - before.at).count(), 0.001);
  // A rank that has joined a job again counts from 0.
  const auto rate = [&](std::int64_t then, std::int64_t now) {
    return static_cast<double>(std::max<std::int64_t>(now - then, 0)) / seconds;
  };
  const RankCounters& then = before.sample.counters;
  const RankCounters& counters = now.sample.counters;
  RankFigures figures;
  figures.rank = now.sample.rank;
  figures.uses_runtime = counters.uses_runtime;
  figures.wait_share = std::min(rate(then.waited_us, counters.waited_us) / 1e6, 1.0);
  figures.collectives_per_s = rate(then.collectives, counters.collectives);
  figures.bytes_per_s = rate(then.bytes, counters.bytes);
  figures.cpu_percent = rate(before.sample.cpu_ms, now.sample.cpu_ms) / 10;
  figures.rss_bytes = now.sample.rss_bytes;
  figures.gpus = counters.gpu_count;
  figures.gpu_percent = counters.gpu_percent;
  figures.gpu_bytes = counters.gpu_bytes;
  figures.gpu_total_bytes = counters.gpu_total_bytes;
  figures.last_ms = counters.last_ms;
  figures.last_line = now.sample.last_line;
  return figures;
}

// Nothing here is negative, or near 2^53.
double rounded(double value) {
  return static_cast<double>(static_cast<std::int64_t>(value * 1000 + 0.5)) / 1000;
}

// Members of an object, one after the other. A document of thousands of ranks is made every few
// seconds, so it is written at once and not put together first.
class Members {
 public:
  explicit Members(std::string& out) : out_(out) { out_ += '{'; }

  template <std::integral Number>
  void add(std::string_view name, Number value) {
    begin(name);
    if constexpr (std::same_as<Number, bool>) {
      out_ += value ? "true" : "false";
    } else {
      out_ += std::to_string(value);
    }
  }
  void add(std::string_view name, double value) {
    begin(name);
    std::array<char, 32> text;
    const auto end = std::to_chars(text.begin(), text.end(), rounded(value)).ptr;
    out_.append(text.begin(), end);
  }
  void add(std::string_view name, const std::string& value) {
    begin(name);
    const auto is_plain = [](char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; };
    if (std::ranges::all_of(value, is_plain)) {
      out_.append("\"").append(value).append("\"");
    } else {
      out_ += Json(value).dump(-1, ' ', false, Json::error_handler_t::replace);
    }
  }
  void begin(std::string_view name) {
    if (out_.back() != '{') out_ += ',';
    out_.append("\"").append(name).append("\":");
  }

 private:
  std::string& out_;
};

void append_rank(std::string& out, const RankFigures& rank) {
  Members members(out);
  members.add("rank", rank.rank);
  members.add("host", rank.host);
  members.add("uses_runtime", rank.uses_runtime);
  members.add("delay_share", rank.delay_share);
  members.add("wait_share", rank.wait_share);
  members.add("collectives_per_s", rank.collectives_per_s);
  members.add("bytes_per_s", rank.bytes_per_s);
  members.add("last_collective_ms", rank.last_ms);
  members.add("cpu_percent", rank.cpu_percent);
  members.add("rss_bytes", rank.rss_bytes);
  members.add("gpus", rank.gpus);
  members.add("gpu_percent", rank.gpu_percent);
  members.add("gpu_bytes", rank.gpu_bytes);
  members.add("gpu_total_bytes", rank.gpu_total_bytes);
  members.add("last_line", rank.last_line);
  out += '}';
}

RankFigures parse_rank(const Json& in) {
  RankFigures rank;
  in.at("rank").get_to(rank.rank);
  in.at("host").get_to(rank.host);
  in.at("uses_runtime").get_to(rank.uses_runtime);
  in.at("delay_share").get_to(rank.delay_share);
  in.at("wait_share").get_to(rank.wait_share);
  in.at("collectives_per_s").get_to(rank.collectives_per_s);
  in.at("bytes_per_s").get_to(rank.bytes_per_s);
  in.at("last_collective_ms").get_to(rank.last_ms);
  in.at("cpu_percent").get_to(rank.cpu_percent);
  in.at("rss_bytes").get_to(rank.rss_bytes);
  in.at("gpus").get_to(rank.gpus);
  in.at("gpu_percent").get_to(rank.gpu_percent);
  in.at("gpu_bytes").get_to(rank.gpu_bytes);
  in.at("gpu_total_bytes").get_to(rank.gpu_total_bytes);
  in.at("last_line").get_to(rank.last_line);
  return rank;
}

}  // namespace

// All shares are at most 1, and the longest wait is that of one of the ranks: no delay is negative.
// A rank that has just started is not in `before`, and has figures from the next round on.
JobFigures figures_between(const SamplesOfRanks& before, const SamplesOfRanks& now) {
  JobFigures all;
  double longest_wait = 0;
  int gpu_percent = 0;
  int gpu_percent_known = 0;
  for (const auto& [rank, sample] : now) {
    const auto first = before.find(rank);
    if (first == before.end()) continue;
    const RankFigures& figures = all.worst.emplace_back(rank_figures(first->second, sample));
    const double seconds = std::chrono::duration<double>(sample.at - first->second.at).count();
    all.seconds = std::max(all.seconds, seconds);
    all.collectives_per_s = std::max(all.collectives_per_s, figures.collectives_per_s);
    all.bytes_per_s += figures.bytes_per_s;
    all.cpu_percent += figures.cpu_percent;
    all.rss_bytes += figures.rss_bytes;
    all.gpus += figures.gpus;
    all.gpu_bytes += figures.gpu_bytes;
    if (figures.gpu_percent >= 0) {
      gpu_percent += figures.gpu_percent;
      ++gpu_percent_known;
    }
    if (figures.uses_runtime) longest_wait = std::max(longest_wait, figures.wait_share);
  }
  all.ranks = static_cast<int>(all.worst.size());
  if (gpu_percent_known > 0) all.gpu_percent = gpu_percent / gpu_percent_known;
  for (RankFigures& rank : all.worst) {
    if (rank.uses_runtime) rank.delay_share = longest_wait - rank.wait_share;
  }
  std::stable_sort(
      all.worst.begin(), all.worst.end(),
      [](const RankFigures& a, const RankFigures& b) { return a.delay_share > b.delay_share; });
  return all;
}

// Figures come in other intervals while a client watches.
void UsageSeries::add(double at_s, const JobFigures& figures) {
  constexpr std::size_t kMostPoints = 240;
  const double seconds = std::chrono::duration<double>(interval_).count();
  constexpr double kNearly = 0.9;  // answers do not come equally fast each time
  if (!points_.empty() && at_s < points_.back().at_s + kNearly * seconds) return;
  // Of each two points the newer one stays, and from now on they come half as often.
  if (points_.size() == kMostPoints) {
    for (std::size_t i = 0; i < kMostPoints / 2; ++i) points_[i] = points_[2 * i + 1];
    points_.resize(kMostPoints / 2);
    interval_ *= 2;
  }
  std::int64_t largest = 0;
  for (const RankFigures& rank : figures.worst) largest = std::max(largest, rank.rss_bytes);
  points_.push_back({at_s, figures.rss_bytes, largest, figures.cpu_percent,
                     figures.collectives_per_s, figures.bytes_per_s, figures.gpus,
                     figures.gpu_percent, figures.gpu_bytes});
}

// Names and base units as its documentation asks for. What a rank does not have is left out.
std::string prometheus_text(int job, const JobFigures& figures) {
  struct Metric {
    const char* name;
    const char* help;
    bool (*is_known)(const RankFigures& rank);
    double (*value)(const RankFigures& rank);
  };
  constexpr auto kAlways = [](const RankFigures&) { return true; };
  constexpr auto kRuntime = [](const RankFigures& rank) { return rank.uses_runtime; };
  static constexpr Metric kMetrics[] = {
      {"delay_ratio", "Share of the time for which other ranks waited for this one.", kRuntime,
       [](const RankFigures& rank) { return rank.delay_share; }},
      {"wait_ratio", "Share of the time in which this rank waited for others.", kRuntime,
       [](const RankFigures& rank) { return rank.wait_share; }},
      {"collectives_per_second", "Collectives that the rank came through.", kRuntime,
       [](const RankFigures& rank) { return rank.collectives_per_s; }},
      {"collective_bytes_per_second", "Bytes of the tensors that the rank gave to them.", kRuntime,
       [](const RankFigures& rank) { return rank.bytes_per_s; }},
      {"cpus", "CPUs that the rank's processes use.", kAlways,
       [](const RankFigures& rank) { return rank.cpu_percent / 100; }},
      {"memory_bytes", "Resident memory of the rank's processes.", kAlways,
       [](const RankFigures& rank) { return static_cast<double>(rank.rss_bytes); }},
      {"gpu_ratio", "Share of the last second in which the GPUs that the rank sees worked.",
       [](const RankFigures& rank) { return rank.gpu_percent >= 0; },
       [](const RankFigures& rank) { return rank.gpu_percent / 100.0; }},
      {"gpu_memory_bytes", "Memory in use of the GPUs that the rank sees.",
       [](const RankFigures& rank) { return rank.gpus > 0; },
       [](const RankFigures& rank) { return static_cast<double>(rank.gpu_bytes); }}};
  std::string out;
  for (const Metric& metric : kMetrics) {
    const std::string name = std::string("horarun_rank_") + metric.name;
    if (std::ranges::none_of(figures.worst, metric.is_known)) continue;
    out += "# HELP " + name + " " + metric.help + "\n# TYPE " + name + " gauge\n";
    for (const RankFigures& rank : figures.worst) {
      if (!metric.is_known(rank)) continue;
      // Its quoting of labels is that of JSON, for what a host may be called.
      out += name + "{job=\"" + std::to_string(job) + "\",rank=\"" + std::to_string(rank.rank) +
             "\",host=" + Json(rank.host).dump(-1, ' ', false, Json::error_handler_t::replace) +
             "} " + Json(rounded(metric.value(rank))).dump() + "\n";
    }
  }
  return out;
}

std::string figures_json(int job, const JobFigures& figures) {
  std::string out;
  Members members(out);
  members.add("job", job);
  members.add("seconds", figures.seconds);
  members.add("ranks", figures.ranks);
  members.add("collectives_per_s", figures.collectives_per_s);
  members.add("bytes_per_s", figures.bytes_per_s);
  members.add("cpu_percent", figures.cpu_percent);
  members.add("rss_bytes", figures.rss_bytes);
  members.add("gpus", figures.gpus);
  members.add("gpu_percent", figures.gpu_percent);
  members.add("gpu_bytes", figures.gpu_bytes);
  members.begin("worst");
  out += '[';
  for (const RankFigures& rank : figures.worst) {
    if (out.back() != '[') out += ',';
    append_rank(out, rank);
  }
  return out + "]}\n";
}

Result<JobFigures> parse_figures(std::string_view json) {
  const auto in = Json::parse(json, nullptr, false);
  JobFigures figures;
  try {
    in.at("seconds").get_to(figures.seconds);
    in.at("ranks").get_to(figures.ranks);
    in.at("collectives_per_s").get_to(figures.collectives_per_s);
    in.at("bytes_per_s").get_to(figures.bytes_per_s);
    in.at("cpu_percent").get_to(figures.cpu_percent);
    in.at("rss_bytes").get_to(figures.rss_bytes);
    in.at("gpus").get_to(figures.gpus);
    in.at("gpu_percent").get_to(figures.gpu_percent);
    in.at("gpu_bytes").get_to(figures.gpu_bytes);
    for (const Json& rank : in.at("worst")) figures.worst.push_back(parse_rank(rank));
  } catch (const Json::exception&) {
    return make_error(ErrorCode::kFailed,
                      "the launcher answered what are not the figures of a job");
  }
  return figures;
}

}  // namespace hora::launcher
