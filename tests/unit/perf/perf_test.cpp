#include <algorithm>

#include "apps/perf/options.h"
#include "apps/perf/table.h"
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
                            "99999999999999999999", "2000000G"}) {
    CHECK(has(problem_of({"--sizes", wrong}), "is not a list of sizes"));
  }
}

TEST_CASE("hora-perf's arguments: what is wrong is named, with what would be right") {
  const Options options = parsed({"alltoall", "--dtype", "bfloat16", "--op=max", "--iterations",
                                  "7", "--seconds=0.25", "--in-place", "--no-check", "--json"});
  CHECK(options.operation == HORA_ALLTOALL);
  CHECK(options.dtype == HORA_BFLOAT16);
  CHECK(options.op == HORA_MAX);
  CHECK(options.iterations == 7);
  CHECK(options.seconds == 0.25);
  CHECK(options.in_place);
  CHECK_FALSE(options.check);
  CHECK(options.format == Format::kJson);
  CHECK(has(problem_of({"allrdeuce"}), "'allrdeuce' is unknown; expected one of allreduce"));
  CHECK(has(problem_of({"--dtype", "float"}), "expected one of uint8"));
  CHECK(has(problem_of({"--op", "adasum"}), "expected one of sum"));
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
