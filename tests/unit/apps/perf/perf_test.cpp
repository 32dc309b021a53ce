// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "apps/perf/options.h"
#include "apps/perf/plot.h"
#include "apps/perf/results.h"
#include "tests/support/catch.h"

using namespace hora::perf;
using Sizes = std::vector<std::int64_t>;

namespace {

Options parsed(const std::vector<std::string>& arguments) {
  Options options;
  INFO(parse_options(arguments, options));
  CHECK(parse_options(arguments, options) == "");
  return options;
}

std::string problem_of(const std::vector<std::string>& arguments) {
  Options options;
  return parse_options(arguments, options);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("hora-perf's sizes: single ones, ranges, factors") {
  CHECK(parsed({}).sizes.front() == 4);
  CHECK(parsed({}).sizes.back() == 64 << 20);
  CHECK(parsed({"--sizes", "4,64K,1M,1g"}).sizes == Sizes{4, 65536, 1 << 20, 1 << 30});
  CHECK(parsed({"--sizes=1K..5K"}).sizes == Sizes{1024, 4096});
  CHECK(parsed({"--sizes", "3..24*2,0"}).sizes == Sizes{3, 6, 12, 24, 0});
  CHECK(parsed({"barrier"}).sizes == Sizes{0});
  for (const char* wrong : {"", "x", "4,", "-4", "4K..", "8..4", "0..4", "4..64*1", "4..64*x",
                            "4..64*4611686018427387904", "99999999999999999999", "2000000G"}) {
    CHECK(has(problem_of({"--sizes", wrong}), "is not a list of sizes"));
  }
}

TEST_CASE("hora-perf's arguments: what is wrong is named, with what would be right") {
  const Options options =
      parsed({"alltoall", "--dtype", "bfloat16", "--op=max", "--iterations", "7", "--seconds=0.25",
              "--in-place", "--prepared", "--no-check", "--json", "--device", "gpu"});
  CHECK(options.operation == HORA_ALLTOALL);
  CHECK(options.dtype == HORA_BFLOAT16);
  CHECK(options.op == HORA_MAX);
  CHECK(options.iterations == 7);
  CHECK(options.seconds == 0.25);
  CHECK(options.in_place);
  CHECK(options.prepared);
  CHECK(options.gpu);
  CHECK_FALSE(options.check);
  CHECK(options.format == Format::kJson);
  CHECK(has(problem_of({"allrdeuce"}), "'allrdeuce' is unknown; expected one of allreduce"));
  CHECK(has(problem_of({"--dtype", "float"}), "expected one of uint8"));
  CHECK(has(problem_of({"--op", "adasum"}), "expected one of sum"));
  CHECK(has(problem_of({"--device", "tpu"}), "expected one of cpu, gpu"));
  CHECK(has(problem_of({"--sizes"}), "needs a value"));
  CHECK(has(problem_of({"--size", "4"}), "'--size' is unknown"));
  CHECK(has(problem_of({"--iterations", "0"}), "from 1"));
  CHECK(has(problem_of({"--seconds", "-1"}), "is not a time"));
  CHECK(has(problem_of({"allreduce", "barrier"}), "one argument too many"));
  CHECK(has(problem_of({"--dtype", "bool", "--op", "average"}), "no average"));
}

TEST_CASE("hora-perf's bandwidths are those of nccl-tests") {
  Row row;
  row.bytes = 1'000'000'000;
  row.mean = 1e6;
  CHECK(algorithm_bandwidth(row) == Approx(1.0));
  CHECK(bus_bandwidth(row, HORA_ALLREDUCE, 4) == Approx(1.5));
  for (hora_operation operation : {HORA_ALLGATHER, HORA_REDUCESCATTER, HORA_ALLTOALL}) {
    CHECK(bus_bandwidth(row, operation, 4) == Approx(0.75));
  }
  CHECK(bus_bandwidth(row, HORA_BROADCAST, 4) == Approx(1.0));
}

TEST_CASE("hora-perf's reports: one line of CSV for each row, one JSON text") {
  Report report;
  report.version = "1.2.3";
  report.ranks = 2;
  report.backends = {"shm"};
  report.rows.resize(2);
  report.rows[0].bytes = 4;
  report.rows[0].wrong = 0;
  CHECK(report.ok());
  const std::string json = format_json(report);
  CHECK(has(json, "\"operation\":\"allreduce\""));
  CHECK(has(json, "\"wrong\":0}"));
  CHECK(has(json, "\"wrong\":null}"));
  report.options.format = Format::kCsv;
  const auto commas = [](const std::string& text) {
    return std::count(text.begin(), text.end(), ',');
  };
  CHECK(commas(format_head(report)) == commas(format_row(report, report.rows[0])));
  report.rows[1].wrong = 3;
  CHECK_FALSE(report.ok());
}

TEST_CASE("hora-perf plot reads its own CSV and JSON, and other files with the same columns") {
  Report report;
  report.version = "1.2.3";
  report.ranks = 4;
  for (const std::int64_t bytes : {65536, 4}) {
    Row& row = report.rows.emplace_back();
    row.bytes = bytes;
    row.mean = 20;
    row.median = 16;
  }
  std::string problem;
  const Series from_json = parse_results(format_json(report), "a", problem);
  CHECK(problem == "");
  report.options.format = Format::kCsv;
  std::string csv = format_head(report);
  for (const Row& row : report.rows) csv += format_row(report, row);
  const Series from_csv = parse_results(csv, "b", problem);
  CHECK(problem == "");
  for (const Series& series : {from_json, from_csv}) {
    REQUIRE(series.figures.size() == 2);
    CHECK(series.figures[0].bytes == 4);
    CHECK(series.figures[1].latency_us == 16);
    CHECK(series.figures[1].bandwidth_gbs == Approx(65536 / 20.0 / 1e3 * 1.5).margin(1e-4));
  }
  const Series peers = parse_results("bytes,mean_us\r\n4,1.5\r\n", "c", problem);
  CHECK(problem == "");
  CHECK(peers.figures.at(0).latency_us == 1.5);
  CHECK(peers.figures.at(0).bandwidth_gbs < 0);
  for (const auto& [text, complaint] :
       std::vector<std::pair<std::string, std::string>>{{"", "names no columns"},
                                                        {"bytes,mean_us\n4\n", "line 2"},
                                                        {"bytes,mean_us\n", "no figures"},
                                                        {"{\"rows\":[{}]}", "lacks bytes"},
                                                        {"{", "not a report"}}) {
    parse_results(text, "x", problem);
    CHECK(has(problem, complaint));
  }
}

TEST_CASE("hora-perf plot: every figure has its place, larger is higher and farther to the right") {
  const std::vector<Series> series{{"<fast> & \"good\"", {{4, 1, 0.01}, {4096, 10, 1}}},
                                   {"other", {{4, 2, -1}, {4096, 20, -1}, {0, 5, -1}}}};
  const std::string svg = draw_plot(series, "title");
  CHECK(has(svg, "&lt;fast&gt; &amp; &quot;good&quot;"));
  const auto count = [&svg](const std::string& part) {
    int found = 0;
    for (std::size_t at = svg.find(part); at != std::string::npos; at = svg.find(part, at + 1)) {
      ++found;
    }
    return found;
  };
  CHECK(count("<circle") == 2 + 2 + 2);  // both panels, latency alone; none of 0 bytes
  CHECK(count("<polyline") == 3);
  const auto numbers_of = [&svg](const std::string& of, const char* name) {
    const std::size_t end = svg.find("><title>" + of);
    REQUIRE(end != std::string::npos);
    const std::size_t at = svg.rfind(std::string(name) + "=\"", end);
    return std::stod(svg.substr(at + std::string(name).size() + 2));
  };
  CHECK(numbers_of("other, 4 KiB: 20", "cx") > numbers_of("other, 4 B: 2", "cx"));
  CHECK(numbers_of("other, 4 KiB: 20", "cy") < numbers_of("other, 4 B: 2", "cy"));
  CHECK(draw_plot({}, "nothing").find("nan") == std::string::npos);
}
