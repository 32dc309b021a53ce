// SPDX-License-Identifier: Apache-2.0
#include "apps/perf/plot_command.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "apps/perf/plot.h"
#include "rendezvous/os/files.h"

namespace hora::perf {

namespace {

constexpr const char* kUsage =
    "usage: hora-perf plot -o FILE.svg|FILE.html [--title TEXT] [LABEL=]FILE...\n"
    "\n"
    "Draws the latency and the bus bandwidth of each FILE by size: output of hora-perf --csv or "
    "--json,\n"
    "or any CSV with columns bytes and median_us (or mean_us), and busbw_gbs where it is known.\n"
    "FILE.html is a page that has the figures, too.\n";

int usage_error(const std::string& problem) {
  std::fprintf(stderr, "hora-perf plot: %s\n%s", problem.c_str(), kUsage);
  return 2;
}

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

bool read_series(const std::string& argument, std::vector<Series>& series) {
  // A name with '=' is a label and a file, unless a file of that name exists.
  std::string label;
  std::string path = argument;
  File file(std::fopen(path.c_str(), "re"));
  if (const std::size_t equals = argument.find('='); !file && equals != std::string::npos) {
    label = argument.substr(0, equals);
    path = argument.substr(equals + 1);
    file.reset(std::fopen(path.c_str(), "re"));
  }
  if (label.empty()) {
    label = path.substr(path.rfind('/') + 1);
    label = label.substr(0, label.rfind('.'));
  }
  if (!file) {
    std::fprintf(stderr, "hora-perf plot: %s: %s\n", path.c_str(), std::strerror(errno));
    return false;
  }
  std::string text;
  char buffer[4096];
  while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, file.get())) {
    text.append(buffer, count);
  }
  std::string problem;
  series.push_back(parse_results(text, label, problem));
  if (problem.empty()) return true;
  std::fprintf(stderr, "hora-perf plot: %s: %s; expected the output of hora-perf --csv or --json\n",
               path.c_str(), problem.c_str());
  return false;
}

Status write_picture(const std::string& path, const std::string& drawn) {
  auto file = os::AtomicFile::make(path, 0666);
  if (!file) return std::move(file).error();
  HORA_TRY(file->write(drawn));
  return file->finish();
}

}  // namespace

int run_plot(const std::vector<std::string>& arguments) {
  std::string output;
  std::string title = "hora-perf";
  std::vector<std::string> inputs;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "-h" || argument == "--help") {
      std::fputs(kUsage, stdout);
      return 0;
    }
    if (argument == "-o" || argument == "--title") {
      if (++i == arguments.size()) return usage_error("option '" + argument + "' needs a value");
      (argument == "-o" ? output : title) = arguments[i];
    } else if (argument.size() > 1 && argument[0] == '-') {
      return usage_error("option '" + argument + "' is unknown");
    } else {
      inputs.push_back(argument);
    }
  }
  if (output.empty() || inputs.empty())
    return usage_error("expected -o FILE.svg or FILE.html, and files to read");
  std::vector<Series> series;
  for (const std::string& input : inputs) {
    if (!read_series(input, series)) return 2;
  }
  const std::string drawn =
      output.ends_with(".html") ? draw_page(series, title) : draw_plot(series, title);
  const Status written = write_picture(output, drawn);
  if (written) return 0;
  std::fprintf(stderr, "hora-perf plot: %s\n", written.error().message.c_str());
  return 1;
}

}  // namespace hora::perf
