// SPDX-License-Identifier: Apache-2.0
#include "launcher/control/job_figures.h"

#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher;
using namespace std::chrono_literals;

namespace {

const Clock::time_point kStart{};

TimedSample sample(int rank, Clock::duration at, std::chrono::microseconds waited,
                   std::int64_t collectives = 0) {
  RankSample out;
  out.rank = rank;
  out.counters.uses_runtime = true;
  out.counters.waited_us = waited.count();
  out.counters.collectives = collectives;
  out.counters.bytes = 4 * collectives;
  out.cpu_ms = 10 * collectives;
  out.rss_bytes = 1 << 20;
  return {out, kStart + at};
}

// Four ranks for ten seconds, of which rank 2 comes last and the others wait for it.
SamplesOfRanks four_ranks(bool later) {
  SamplesOfRanks samples;
  for (int rank = 0; rank < 4; ++rank) {
    const auto waited = later && rank != 2 ? 5s : 0s;
    samples[rank] = sample(rank, later ? 10s : 0s, waited, later ? 100 : 0);
  }
  return samples;
}

}  // namespace

TEST_CASE("The rank that does not wait while the others do is the worst") {
  const JobFigures figures = figures_between(four_ranks(false), four_ranks(true));
  REQUIRE(figures.worst.size() == 4);
  CHECK(figures.worst[0].rank == 2);
  CHECK(figures.worst[0].delay_share == 0.5);
  CHECK(figures.worst[0].wait_share == 0);
  CHECK(figures.worst[1].rank == 0);
  CHECK(figures.worst[1].delay_share == 0);
  CHECK(figures.worst[1].wait_share == 0.5);
}

TEST_CASE("Sums are of all ranks, and the number of collectives is that of one") {
  const JobFigures figures = figures_between(four_ranks(false), four_ranks(true));
  CHECK(figures.ranks == 4);
  CHECK(figures.seconds == 10);
  CHECK(figures.collectives_per_s == 10);
  CHECK(figures.bytes_per_s == 160);
  CHECK(figures.cpu_percent == 40);
  CHECK(figures.rss_bytes == 4 << 20);
}

TEST_CASE("A rank that delays no other, uses no runtime or is alone has no delay") {
  SamplesOfRanks before{{0, sample(0, 0s, 0s)}};
  SamplesOfRanks now{{0, sample(0, 1s, 0s, 5)}};
  CHECK(figures_between(before, now).worst[0].delay_share == 0);
  before[1] = sample(1, 0s, 0s);
  now[1] = sample(1, 1s, 500ms);
  now[0].sample.counters.uses_runtime = false;
  for (const RankFigures& rank : figures_between(before, now).worst) CHECK(rank.delay_share == 0);
}

TEST_CASE("Ranks of one sample only are left out, and counters that go back give 0") {
  SamplesOfRanks before{{0, sample(0, 0s, 3s, 100)}, {1, sample(1, 0s, 0s)}};
  SamplesOfRanks now{{0, sample(0, 1s, 0s, 1)}, {2, sample(2, 1s, 0s)}};
  const JobFigures figures = figures_between(before, now);
  REQUIRE(figures.worst.size() == 1);
  CHECK(figures.worst[0].collectives_per_s == 0);
  CHECK(figures.worst[0].wait_share == 0);
}

TEST_CASE("The use of GPUs is the mean of the ranks that know it, their memory a sum") {
  SamplesOfRanks now = four_ranks(true);
  for (const int rank : {0, 1, 3}) {
    RankCounters& counters = now[rank].sample.counters;
    counters.gpu_count = 2;
    counters.gpu_percent = rank == 3 ? -1 : 40 + 10 * rank;
    counters.gpu_bytes = 100;
  }
  const JobFigures figures = figures_between(four_ranks(false), now);
  CHECK(figures.gpus == 6);
  CHECK(figures.gpu_percent == 45);
  CHECK(figures.gpu_bytes == 300);
  const std::string text = prometheus_text(7, figures);
  CHECK(text.find("horarun_rank_gpu_ratio{job=\"7\",rank=\"1\",host=\"\"} 0.5\n") !=
        std::string::npos);
  CHECK(text.find("horarun_rank_gpu_ratio{job=\"7\",rank=\"3\"") == std::string::npos);
  CHECK(prometheus_text(7, figures_between(four_ranks(false), four_ranks(true))).find("gpu") ==
        std::string::npos);
}

TEST_CASE("Figures come back from JSON") {
  JobFigures figures = figures_between(four_ranks(false), four_ranks(true));
  figures.gpus = figures.worst[0].gpus = 2;
  figures.gpu_percent = figures.worst[0].gpu_percent = 50;
  figures.gpu_bytes = figures.worst[0].gpu_bytes = 7;
  figures.worst[0].gpu_total_bytes = 8;
  figures.worst[0].host = "node\"1";
  const std::string all = figures_json(7, figures);
  CHECK(all.find('\n') == all.size() - 1);
  const auto back = parse_figures(all);
  REQUIRE(back);
  CHECK(*back == figures);
}

TEST_CASE("Figures as Prometheus reads them") {
  JobFigures figures = figures_between(four_ranks(false), four_ranks(true));
  figures.worst[0].host = "b\"1";
  figures.worst[3].uses_runtime = false;
  const std::string text = prometheus_text(7, figures);
  CHECK(text.find("# TYPE horarun_rank_delay_ratio gauge\n"
                  "horarun_rank_delay_ratio{job=\"7\",rank=\"2\",host=\"b\\\"1\"} 0.5\n") !=
        std::string::npos);
  CHECK(text.find("horarun_rank_memory_bytes{job=\"7\",rank=\"3\"") != std::string::npos);
  CHECK(text.find("horarun_rank_wait_ratio{job=\"7\",rank=\"3\"") == std::string::npos);
}

TEST_CASE("The points of a job's use are a few hundred, however long it runs") {
  UsageSeries series;
  JobFigures figures = figures_between(four_ranks(false), four_ranks(true));
  for (int second = 1; second <= 100'000; ++second) {
    figures.rss_bytes = second;
    series.add(second, figures);
  }
  CHECK(series.points().size() > 100);
  CHECK(series.points().size() <= 240);
  CHECK(series.interval() > 100s);
  CHECK(series.points().back().at_s > 99'000);
  CHECK(series.points().front().at_s < 1'000);
  for (const UsagePoint& point : series.points()) {
    CHECK(static_cast<double>(point.rss_bytes) == point.at_s);
    CHECK(point.largest_rss_bytes == 1 << 20);
  }
}

TEST_CASE("Malformed figures are an error") {
  for (const char* text : {"", "{", "[]", "null", "{\"seconds\": 1}", "{\"seconds\": \"x\"}",
                           "{\"seconds\":1,\"ranks\":1,\"collectives_per_s\":1,\"bytes_per_s\":1,"
                           "\"cpu_percent\":1,\"rss_bytes\":1,\"worst\":[1]}"}) {
    INFO(text);
    CHECK_FALSE(parse_figures(text));
  }
}
