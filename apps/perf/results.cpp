// SPDX-License-Identifier: Apache-2.0
#include "apps/perf/results.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <nlohmann/json.hpp>

#include "apps/print.h"
#include "rendezvous/base/text.h"

namespace hora::perf {

// Reads results of hora-perf and of other tools with similar columns.

namespace {

using nlohmann::json;

// Splits into the pieces between separators; an empty one at the end does not count.
std::vector<std::string> split_at(const std::string& text, char separator) {
  std::vector<std::string> pieces;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    pieces.push_back(text.substr(begin, end - begin));
    std::string& piece = pieces.back();
    while (!piece.empty() && (piece.back() == '\r' || piece.back() == ' ')) piece.pop_back();
    begin = end + 1;
  }
  return pieces;
}

bool parse_number(const std::string& text, double& out) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), out);
  return parsed.ec == std::errc{} && parsed.ptr == text.data() + text.size();
}

std::string parse_csv(const std::string& text, std::vector<Figure>& figures) {
  const std::vector<std::string> lines = split_at(text, '\n');
  const std::vector<std::string> names = split_at(lines.empty() ? "" : lines.front(), ',');
  const auto column = [&](const char* name) {
    return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
  };
  const std::size_t bytes = column("bytes");
  const std::size_t median = column("median_us");
  // The median is robust against disturbance; other tools only have a mean.
  const std::size_t latency = median < names.size() ? median : column("mean_us");
  const std::size_t bandwidth = column("busbw_gbs");
  if (bytes == names.size() || latency == names.size()) {
    return "the first line names no columns bytes and median_us or mean_us";
  }
  for (std::size_t number = 1; number < lines.size(); ++number) {
    const std::vector<std::string> cells = split_at(lines[number], ',');
    if (cells.empty()) continue;
    Figure figure;
    if (cells.size() != names.size() || !parse_number(cells[bytes], figure.bytes) ||
        !parse_number(cells[latency], figure.latency_us) ||
        (bandwidth < names.size() && !parse_number(cells[bandwidth], figure.bandwidth_gbs))) {
      return "line " + std::to_string(number + 1) + " is not a row of such a table";
    }
    figures.push_back(figure);
  }
  return {};
}

std::string parse_json(const std::string& text, std::vector<Figure>& figures) {
  const json report = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!report.is_object() || !report.contains("rows") || !report["rows"].is_array()) {
    return "it is not a report of hora-perf --json";
  }
  for (const json& row : report["rows"]) {
    // -1 marks a missing number.
    const auto number = [&row](const char* name) {
      const auto found = row.is_object() ? row.find(name) : row.end();
      return found != row.end() && found->is_number() ? found->get<double>() : -1;
    };
    const Figure figure{number("bytes"), number("median_us"), number("busbw_gbs")};
    if (figure.bytes < 0 || figure.latency_us < 0) return "a row lacks bytes or median_us";
    figures.push_back(figure);
  }
  return {};
}

}  // namespace

Series parse_results(const std::string& text, const std::string& label, std::string& problem) {
  // JSON begins with a brace, CSV never does.
  Series series{label, {}};
  problem = !text.empty() && text.front() == '{' ? parse_json(text, series.figures)
                                                 : parse_csv(text, series.figures);
  if (problem.empty() && series.figures.empty()) problem = "it holds no figures";
  std::stable_sort(series.figures.begin(), series.figures.end(),
                   [](const Figure& a, const Figure& b) { return a.bytes < b.bytes; });
  return series;
}

namespace {

std::string joined(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : " ") + item;
  return text;
}

bool reduces(hora_operation operation) {
  return operation == HORA_ALLREDUCE || operation == HORA_REDUCESCATTER;
}

std::string op_of(const Options& options) {
  return reduces(options.operation) ? std::string(name_of(options.op)) : std::string("-");
}

}  // namespace

// Bytes per microsecond, divided by 1000, are GB/s.
double algorithm_bandwidth(const Row& row) {
  return row.mean > 0 ? static_cast<double>(row.bytes) / row.mean / 1e3 : 0;
}

// The bus bandwidth corrects for the algorithm: it says how fast the links must be, whatever the
// number of ranks, so figures of different jobs compare. nccl-tests uses the same factors.
double bus_bandwidth(const Row& row, hora_operation operation, int ranks) {
  const double n = ranks;
  switch (operation) {
    case HORA_ALLREDUCE:
      return algorithm_bandwidth(row) * 2 * (n - 1) / n;
    case HORA_ALLGATHER:
    case HORA_REDUCESCATTER:
    case HORA_ALLTOALL:
      return algorithm_bandwidth(row) * (n - 1) / n;
    default:
      return algorithm_bandwidth(row);
  }
}

bool Report::ok() const {
  // -1 (not checked) is not an error.
  return std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.wrong <= 0; });
}

std::string format_head(const Report& report) {
  const Options& options = report.options;
  if (options.format == Format::kCsv) {
    return "operation,dtype,op,ranks,hosts,bytes,count,iterations,mean_us,median_us,best_us,p99_us,"
           "algbw_gbs,busbw_gbs,wrong\n";
  }
  return print("# hora %s: %s of %s%s%s%s, %s on %s, backends: %s\n", report.version.c_str(),
               std::string(name_of(options.operation)).c_str(),
               std::string(name_of(options.dtype)).c_str(), reduces(options.operation) ? ", " : "",
               reduces(options.operation) ? op_of(options).c_str() : "",
               options.gpu ? ", in GPU memory" : "",
               counted(static_cast<std::uint64_t>(report.ranks), "rank").c_str(),
               counted(static_cast<std::uint64_t>(report.hosts), "host").c_str(),
               joined(report.backends).c_str()) +
         print("%12s %12s %6s %11s %11s %11s %11s %9s %9s %6s\n", "bytes", "count", "calls",
               "mean us", "median us", "best us", "p99 us", "algbw", "busbw", "wrong");
}

std::string format_row(const Report& report, const Row& row) {
  const Options& options = report.options;
  const double algorithm = algorithm_bandwidth(row);
  const double bus = bus_bandwidth(row, options.operation, report.ranks);
  const std::string wrong = row.wrong < 0 ? "-" : std::to_string(row.wrong);
  if (options.format == Format::kCsv) {
    return print("%s,%s,%s,%d,%d,", std::string(name_of(options.operation)).c_str(),
                 std::string(name_of(options.dtype)).c_str(), op_of(options).c_str(), report.ranks,
                 report.hosts) +
           print("%lld,%lld,%d,%.3f,%.3f,%.3f,%.3f,%.6g,%.6g,%s\n",
                 static_cast<long long>(row.bytes), static_cast<long long>(row.count),
                 row.iterations, row.mean, row.median, row.best, row.p99, algorithm, bus,
                 wrong.c_str());
  }
  return print("%12lld %12lld %6d %11.2f %11.2f %11.2f %11.2f %9.3f %9.3f %6s\n",
               static_cast<long long>(row.bytes), static_cast<long long>(row.count), row.iterations,
               row.mean, row.median, row.best, row.p99, algorithm, bus, wrong.c_str());
}

std::string format_json(const Report& report) {
  const Options& options = report.options;
  std::string text = "{\"version\":\"" + report.version + "\",\"operation\":\"" +
                     std::string(name_of(options.operation)) + "\",\"dtype\":\"" +
                     std::string(name_of(options.dtype)) + "\",\"op\":\"" + op_of(options) +
                     "\",\"device\":\"" + (options.gpu ? "gpu" : "cpu") +
                     "\",\"ranks\":" + std::to_string(report.ranks) +
                     ",\"hosts\":" + std::to_string(report.hosts) + ",\"backends\":[";
  for (std::size_t i = 0; i < report.backends.size(); ++i) {
    text += (i > 0 ? ",\"" : "\"") + report.backends[i] + "\"";
  }
  text += "],\"ok\":" + std::string(report.ok() ? "true" : "false") + ",\"rows\":[";
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    const Row& row = report.rows[i];
    text += (i > 0 ? "," : "") +
            print("{\"bytes\":%lld,\"count\":%lld,\"iterations\":%d,\"mean_us\":%.3f,",
                  static_cast<long long>(row.bytes), static_cast<long long>(row.count),
                  row.iterations, row.mean) +
            print("\"median_us\":%.3f,\"best_us\":%.3f,\"p99_us\":%.3f,", row.median, row.best,
                  row.p99) +
            print("\"algbw_gbs\":%.6g,\"busbw_gbs\":%.6g,\"wrong\":%s}", algorithm_bandwidth(row),
                  bus_bandwidth(row, options.operation, report.ranks),
                  row.wrong < 0 ? "null" : std::to_string(row.wrong).c_str());
  }
  return text + "]}\n";
}

}  // namespace hora::perf
