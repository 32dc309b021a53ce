// SPDX-License-Identifier: Apache-2.0
// What the ranks of a job do, and which of them the others wait for.  [pure]
//
// Each rank measures how long it waits for the others. In one and the same collective those that
// come first wait the longest, and the last does not wait. So a rank's delay is the wait of the
// rank that waits the most, minus its own: how much later than the first it came, all collectives
// together. That holds for the collectives of all ranks; those of other process sets do not count.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"

namespace hora::launcher {

struct RankFigures {
  int rank = 0;
  std::string host;
  bool uses_runtime = false;
  double delay_share = 0;  // of the time: it came later than the first, and others waited for it
  double wait_share = 0;   // of the time: it waited for others
  double collectives_per_s = 0;
  double bytes_per_s = 0;  // of the tensors that it gave to them
  double cpu_percent = 0;  // of one CPU
  std::int64_t rss_bytes = 0;
  int gpus = 0;          // that it sees, used by any process; 0: not known
  int gpu_percent = -1;  // of the last second, their mean; -1: not known
  std::int64_t gpu_bytes = 0;
  std::int64_t gpu_total_bytes = 0;
  std::string last_line;      // of its output
  std::int64_t last_ms = -1;  // since its last collective; -1: there was none
  friend bool operator==(const RankFigures&, const RankFigures&) = default;
};

struct JobFigures {
  double seconds = 0;            // that they cover, up to now
  int ranks = 0;                 // that answered
  double collectives_per_s = 0;  // of the rank that has the most
  double bytes_per_s = 0;        // of all ranks, likewise below
  double cpu_percent = 0;
  std::int64_t rss_bytes = 0;
  int gpus = 0;
  int gpu_percent = -1;  // the mean of the ranks that know it
  std::int64_t gpu_bytes = 0;
  std::vector<RankFigures> worst;  // all of them, the largest delay first
  friend bool operator==(const JobFigures&, const JobFigures&) = default;
};

// A sample, and when it came.
struct TimedSample {
  RankSample sample;
  Clock::time_point at;
};
using SamplesOfRanks = std::map<int, TimedSample>;

// Of the ranks in both. Hosts are left empty.
JobFigures figures_between(const SamplesOfRanks& before, const SamplesOfRanks& now);

// How what the ranks use changes over the time of a job, for its report: a few hundred points,
// however long it runs.
struct UsagePoint {
  double at_s = 0;  // since all ranks ran
  std::int64_t rss_bytes = 0;
  std::int64_t largest_rss_bytes = 0;  // of one rank
  double cpu_percent = 0;              // of all ranks, likewise below
  double collectives_per_s = 0;        // but for this, as in JobFigures
  double bytes_per_s = 0;
  int gpus = 0;
  int gpu_percent = -1;
  std::int64_t gpu_bytes = 0;
};
class UsageSeries {
 public:
  void add(double at_s, const JobFigures& figures);
  Milliseconds interval() const { return interval_; }  // of the points; it grows
  const std::vector<UsagePoint>& points() const { return points_; }

 private:
  Milliseconds interval_{2'000};
  std::vector<UsagePoint> points_;
};

// In Prometheus's text format.
std::string prometheus_text(int job, const JobFigures& figures);

// One line of JSON, and back.
std::string figures_json(int job, const JobFigures& figures);
// Bytes of another process: anything malformed is an Error.
Result<JobFigures> parse_figures(std::string_view json);

}  // namespace hora::launcher
