// SPDX-License-Identifier: Apache-2.0
// Draws two panels as SVG without any library: latency and bandwidth over the size, both on
// logarithmic axes.
#include "apps/perf/plot.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

#include "apps/print.h"
#include "rendezvous/base/html.h"

namespace hora::perf {

namespace {

// The palette of Okabe and Ito, whose colours people with colour vision deficiencies can
// distinguish.
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                    "#e69f00", "#56b4e9", "#000000", "#999999"};
constexpr double kPanelWidth = 420;
constexpr double kPanelHeight = 300;
constexpr double kLeft = 70;
constexpr double kTop = 50;
constexpr double kGap = 90;

std::string size_text(double bytes) {
  const char* unit = "B";
  for (const char* larger : {"KiB", "MiB", "GiB"}) {
    if (bytes < 1024) break;
    bytes /= 1024;
    unit = larger;
  }
  return print("%g %s", bytes, unit);
}

// An axis over the powers of `base` that cover all values.
struct Axis {
  double base = 10;
  double least = 0;  // exponents
  double most = 1;

  void hold(const std::vector<double>& values) {
    if (values.empty()) return;
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    // The small offset keeps a value that is exactly a power at the edge.
    least = std::floor(std::log(*low) / std::log(base) + 1e-9);
    most = std::max(std::ceil(std::log(*high) / std::log(base) - 1e-9), least + 1);
  }
  double place(double value) const {
    return (std::log(value) / std::log(base) - least) / (most - least);
  }
};

using Value = std::function<double(const Figure&)>;

// A logarithmic axis cannot show zero.
bool is_shown(const Figure& figure, const Value& value) {
  return figure.bytes > 0 && value(figure) > 0;
}

class Panel {
 public:
  Panel(double left, const std::vector<Series>& series, Value value)
      : left_(left), value_(std::move(value)) {
    std::vector<double> sizes;
    std::vector<double> values;
    for (const Series& each : series) {
      for (const Figure& figure : each.figures) {
        if (!is_shown(figure, value_)) continue;
        sizes.push_back(figure.bytes);
        values.push_back(value_(figure));
      }
    }
    x_.base = 4;
    x_.hold(sizes);
    y_.hold(values);
  }

  std::string frame(const std::string& title) const {
    std::string svg =
        print("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" font-weight=\"bold\">%s</text>\n",
              left_ + kPanelWidth / 2, kTop - 10, title.c_str());
    // At most nine labels on the axis.
    const double step = std::ceil((x_.most - x_.least) / 8);
    for (double power = x_.least; power <= x_.most; ++power) {
      const double at = x(std::pow(x_.base, power));
      svg += line(at, kTop, at, kTop + kPanelHeight);
      if (std::fmod(power - x_.least, step) != 0) continue;
      svg += print("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", at,
                   kTop + kPanelHeight + 16, size_text(std::pow(x_.base, power)).c_str());
    }
    for (double power = y_.least; power <= y_.most; ++power) {
      const double at = y(std::pow(y_.base, power));
      svg += line(left_, at, left_ + kPanelWidth, at);
      svg += print("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", left_ - 6, at + 4,
                   std::pow(y_.base, power));
    }
    return svg;
  }

  std::string curve(const Series& series, const char* colour) const {
    std::string points;
    std::string marks;
    for (const Figure& figure : series.figures) {
      if (!is_shown(figure, value_)) continue;
      const double at_x = x(figure.bytes);
      const double at_y = y(value_(figure));
      points += print("%.1f,%.1f ", at_x, at_y);
      marks += print(
          "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"><title>%s, %s: %.4g</title>"
          "</circle>\n",
          at_x, at_y, html_escaped(series.label).c_str(), size_text(figure.bytes).c_str(),
          value_(figure));
    }
    if (points.empty()) return {};
    points.pop_back();
    return print("<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"%s\"/>\n",
                 colour, points.c_str()) +
           print("<g fill=\"%s\">\n", colour) + marks + "</g>\n";
  }

 private:
  double x(double bytes) const { return left_ + kPanelWidth * x_.place(bytes); }
  double y(double value) const { return kTop + kPanelHeight * (1 - y_.place(value)); }
  static std::string line(double x1, double y1, double x2, double y2) {
    return print("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", x1,
                 y1, x2, y2);
  }

  double left_;
  Value value_;
  Axis x_;
  Axis y_;
};

const char* colour_of(std::size_t number) { return kColours[number % std::size(kColours)]; }

struct View {
  const char* title;
  double (*value)(const Figure&);
};
constexpr View kViews[] = {
    {"time of a call, microseconds", [](const Figure& each) { return each.latency_us; }},
    {"bus bandwidth, GB/s", [](const Figure& each) { return each.bandwidth_gbs; }}};

// The views side by side.
std::string picture(const std::vector<Series>& series, const std::string& title,
                    std::span<const View> views) {
  const auto count = static_cast<double>(views.size());
  const double width = kLeft + count * (kPanelWidth + kGap) - kGap + 30;
  const double legend = kTop + kPanelHeight + 40;
  const double height = legend + 18 * static_cast<double>(series.size()) + 10;
  std::string svg =
      print(
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
          "viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"11\">\n",
          width, height, width, height) +
      print("<rect width=\"%.0f\" height=\"%.0f\" fill=\"#fff\"/>\n", width, height) +
      print("<text x=\"%.1f\" y=\"20\" text-anchor=\"middle\" font-size=\"14\">%s</text>\n",
            width / 2, html_escaped(title).c_str());
  double left = kLeft;
  for (const View& view : views) {
    const Panel panel(left, series, view.value);
    svg += panel.frame(view.title);
    for (std::size_t i = 0; i < series.size(); ++i) svg += panel.curve(series[i], colour_of(i));
    left += kPanelWidth + kGap;
  }
  for (std::size_t i = 0; i < series.size(); ++i) {
    const double at = legend + 18 * static_cast<double>(i);
    svg += print(
               "<line x1=\"%.0f\" y1=\"%.0f\" x2=\"%.0f\" y2=\"%.0f\" stroke=\"%s\" "
               "stroke-width=\"3\"/>\n",
               kLeft, at, kLeft + 24, at, colour_of(i)) +
           print("<text x=\"%.0f\" y=\"%.0f\">%s</text>\n", kLeft + 32, at + 4,
                 html_escaped(series[i].label).c_str());
  }
  return svg + "</svg>\n";
}

}  // namespace

std::string draw_plot(const std::vector<Series>& series, const std::string& title) {
  return picture(series, title, kViews);
}

std::string draw_page(const std::vector<Series>& series, const std::string& title) {
  // One below the other where there is no room for both.
  std::string out = "<h1>" + html_escaped(title) + "</h1>\n<div class=\"pictures\">\n";
  for (const View& view : kViews) out += picture(series, "", {&view, 1});
  out += "</div>\n<table>\n";
  for (const Series& each : series) {
    out += "<tr><th>" + html_escaped(each.label) +
           "</th><th>time of a call</th><th>bus bandwidth</th></tr>\n";
    for (const Figure& figure : each.figures) {
      const std::string bandwidth =
          figure.bandwidth_gbs < 0 ? "" : print("%.4g GB/s", figure.bandwidth_gbs);
      out += print("<tr><td data-is=\"%s\">%s</td>", html_escaped(each.label).c_str(),
                   size_text(figure.bytes).c_str()) +
             print("<td data-is=\"time of a call\">%.*f us</td>", figure.latency_us < 100 ? 2 : 0,
                   figure.latency_us) +
             "<td data-is=\"bus bandwidth\">" + bandwidth + "</td></tr>\n";
    }
  }
  return html_page(title, out + "</table>\n");
}

}  // namespace hora::perf
