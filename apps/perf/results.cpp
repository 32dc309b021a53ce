// SPDX-License-Identifier: Apache-2.0
// Reads results of hora-perf and of other tools with similar columns.
#include "apps/perf/results.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <nlohmann/json.hpp>

namespace hora::perf {

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
      return "line " + std::to_string(number + 1) + " is no row of such a table";
    }
    figures.push_back(figure);
  }
  return {};
}

std::string parse_json(const std::string& text, std::vector<Figure>& figures) {
  const json report = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!report.is_object() || !report.contains("rows") || !report["rows"].is_array()) {
    return "it is no report of hora-perf --json";
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

}  // namespace hora::perf
