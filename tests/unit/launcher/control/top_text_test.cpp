// SPDX-License-Identifier: Apache-2.0
#include "launcher/control/top_text.h"

#include <algorithm>

#include "rendezvous/base/text.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher;
using namespace std::chrono_literals;

namespace {

JobSummary job_of(int ranks) {
  JobSummary job;
  job.job = 4711;
  job.state = "running";
  job.command = {"python3", "train.py", "--epochs", "10", "--a-rather-long-option", "value"};
  job.hosts = {"node1", "node2"};
  job.ranks = ranks;
  job.age_s = 123.4;
  return job;
}

JobFigures figures_of(int ranks) {
  JobFigures figures;
  figures.ranks = ranks;
  figures.collectives_per_s = 19.2;
  figures.bytes_per_s = 5e12;
  figures.cpu_percent = 100.0 * ranks;
  figures.rss_bytes = std::int64_t{ranks} << 30;
  for (int rank = 0; rank < ranks; ++rank) {
    RankFigures one;
    one.rank = ranks - 1 - rank;
    one.host = "a-node-with-a-long-name-" + std::to_string(rank);
    one.uses_runtime = true;
    one.delay_share = 1.0 / (rank + 1);
    one.wait_share = 1 - one.delay_share;
    one.collectives_per_s = 123'456'789;
    one.bytes_per_s = 9e14;
    one.last_ms = 86'400'000LL * 400;
    one.cpu_percent = 12'800;
    one.rss_bytes = std::int64_t{1} << 41;
    figures.worst.push_back(one);
  }
  return figures;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (const std::string_view line : split(text, '\n')) lines.emplace_back(line);
  REQUIRE(lines.back().empty());
  lines.pop_back();
  return lines;
}

}  // namespace

TEST_CASE("The table has a row for each of a few ranks, the worst first, and one for all") {
  JobFigures figures = figures_of(4);
  figures.worst[0].host = "node2";
  figures.worst[0].collectives_per_s = 19.24;
  figures.worst[0].bytes_per_s = 1500;
  figures.worst[0].last_ms = 52;
  figures.worst[0].cpu_percent = 99.6;
  figures.worst[0].rss_bytes = 120 << 20;
  const auto lines = lines_of(top_text(job_of(4), figures));
  REQUIRE(lines.size() == 7);
  CHECK(lines[0].starts_with("job 4711  running for 2m3s  4 ranks on 2 hosts  python3 train.py"));
  CHECK(lines[1].find("DELAYS") != std::string::npos);
  CHECK(lines[2] == "     3 node2           100%    0%    19.2    1.5K  0.1s  100%   120M");
  CHECK(lines[6].find("all 4 ranks") != std::string::npos);
}

TEST_CASE("Of many ranks the table has the worst ten and all, on 80 columns") {
  for (const int ranks : {0, 1, 4, 10, 4000}) {
    const auto lines = lines_of(top_text(job_of(ranks), figures_of(ranks)));
    CHECK(lines.size() == 3 + std::min<std::size_t>(ranks, kTopRows));
    for (const std::string& line : lines) {
      INFO(line);
      CHECK(line.size() <= 80);
    }
  }
}

TEST_CASE("In a job with GPUs the table has two columns more, on 80 columns") {
  JobFigures figures = figures_of(3);
  CHECK(lines_of(top_text(job_of(3), figures))[1].find("GPU") == std::string::npos);
  figures.gpus = 8;
  figures.gpu_percent = 100;
  figures.gpu_bytes = 80ll << 30;
  figures.worst[0].gpus = 8;
  figures.worst[0].gpu_percent = 100;
  figures.worst[0].gpu_bytes = 80ll << 30;
  const auto lines = lines_of(top_text(job_of(3), figures));
  for (const std::string& line : lines) CHECK(line.size() <= 80);
  CHECK(lines[1].ends_with("GPU GPUMEM"));
  CHECK(lines[2].find("100%") != std::string::npos);
  CHECK(lines[3].ends_with(" -      -"));
  const std::string progress = progress_text(figures, 10s, 0);
  CHECK(progress.find(", GPU 100%, GPU memory ") != std::string::npos);
}

TEST_CASE("A rank without the runtime shows what the kernel knows") {
  JobFigures figures = figures_of(1);
  figures.worst[0].uses_runtime = false;
  figures.worst[0].last_ms = -1;
  const auto lines = lines_of(top_text(job_of(1), figures));
  CHECK(lines[2].find("     -     -       -       -     -") != std::string::npos);
}

TEST_CASE("The worst ranks show the last line of their output, on 80 columns") {
  JobFigures figures = figures_of(4000);
  for (RankFigures& rank : figures.worst)
    rank.last_line = "step\t7\x1b[1m " + std::string(110, 'x');
  figures.worst[1].last_line.clear();
  const auto lines = lines_of(top_text(job_of(4000), figures));
  REQUIRE(lines.size() == 3 + kTopRows + 1 + kTopLines - 1);
  CHECK(lines[13] == "  RANK LAST LINE OF OUTPUT");
  CHECK(lines[14].starts_with("  3999 step 7 xxx"));
  CHECK(lines[15].starts_with("  3997 step"));
  for (const std::string& line : lines) CHECK(line.size() <= 80);
}

TEST_CASE("The line of progress begins with the rank that delays the others") {
  JobFigures figures = figures_of(4);
  figures.worst[0].delay_share = 0.48;
  figures.worst[0].host = "b";
  CHECK(progress_text(figures, 123'456ms, 0) ==
        "rank 3 on b delays the others for 48% of the time; 2m3s, 4 ranks, 19.2 collectives/s, "
        "4.5T/s, CPU 400%, memory 4.0G");
  CHECK(progress_text(figures, 123'456ms, 40).size() == 40);
  // None does; the ranks do not use the runtime.
  figures.worst[0].delay_share = 0.004;
  figures.collectives_per_s = 0;
  CHECK(progress_text(figures, 1s, 0) == "1s, 4 ranks, CPU 400%, memory 4.0G");
}
