// SPDX-License-Identifier: Apache-2.0
#include "apps/smoke/report.h"

#include <algorithm>

#include "apps/print.h"
#include "rendezvous/base/text.h"

namespace hora::smoke {

namespace {

std::string joined(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
  return text;
}

// Microseconds for small sizes, bytes per second for large ones.
std::string format_timing(const Timing& timing) {
  // Few bytes show what one call costs, many show what the network carries.
  if (timing.bytes <= 4) return print("%.1f us", timing.microseconds);
  const double gigabytes = static_cast<double>(timing.bytes) / timing.microseconds / 1e3;
  return print("%.2f GB/s", gigabytes);
}

std::string timing_of(const Report& report, const std::string& operation, std::int64_t bytes) {
  for (const Timing& timing : report.timings) {
    if (timing.operation == operation && timing.bytes == bytes) return format_timing(timing);
  }
  return "";
}

// By hand: the program is in every bundle, and eight keys are not worth a JSON library in it.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += print("\\u%04x", c);
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace

bool Report::ok() const {
  return std::all_of(checks.begin(), checks.end(),
                     [](const CheckResult& each) { return each.failures == 0; });
}

std::string format_table(const Report& report) {
  std::string text = print("hora %s: %s on %s, backends: %s\n", report.version.c_str(),
                           counted(static_cast<std::uint64_t>(report.ranks), "rank").c_str(),
                           counted(static_cast<std::uint64_t>(report.hosts), "host").c_str(),
                           joined(report.backends).c_str());
  text += print("%-14s %6s %6s  %-8s %12s %12s %12s %12s\n", "operation", "dtypes", "checks",
                "result", "4 B", "64 KiB", "1 MiB", "16 MiB");
  int cases = 0;
  for (const CheckResult& check : report.checks) {
    cases += check.cases;
    const std::string result = check.failures == 0 ? "ok" : "FAILED";
    const std::string dtypes = check.dtypes > 0 ? std::to_string(check.dtypes) : "";
    // A barrier has no data; its time stands in the column of the smallest size.
    const std::int64_t smallest = check.operation == "barrier" ? 0 : 4;
    text +=
        print("%-14s %6s %6d  %-8s %12s %12s %12s %12s\n", check.operation.c_str(), dtypes.c_str(),
              check.cases, result.c_str(), timing_of(report, check.operation, smallest).c_str(),
              timing_of(report, check.operation, 65536).c_str(),
              timing_of(report, check.operation, 1 << 20).c_str(),
              timing_of(report, check.operation, 16 << 20).c_str());
  }
  for (const auto& [rank, failure] : report.first_failures) {
    text += "rank " + std::to_string(rank) + ": " + failure + "\n";
  }
  return text + print("%s: %d checks on each rank, %.1f s\n", report.ok() ? "all ok" : "FAILED",
                      cases, report.seconds);
}

std::string format_json(const Report& report) {
  std::string text = "{\"ok\":" + std::string(report.ok() ? "true" : "false") +
                     ",\"version\":" + quoted(report.version) +
                     ",\"ranks\":" + std::to_string(report.ranks) +
                     ",\"hosts\":" + std::to_string(report.hosts) + ",\"backends\":[";
  for (std::size_t i = 0; i < report.backends.size(); ++i) {
    text += (i > 0 ? "," : "") + quoted(report.backends[i]);
  }
  text += "],\"checks\":[";
  for (std::size_t i = 0; i < report.checks.size(); ++i) {
    const CheckResult& check = report.checks[i];
    text += std::string(i > 0 ? "," : "") + "{\"operation\":" + quoted(check.operation) +
            ",\"dtypes\":" + std::to_string(check.dtypes) +
            ",\"checks\":" + std::to_string(check.cases) +
            ",\"failures\":" + std::to_string(check.failures) + "}";
  }
  text += "],\"failures\":[";
  for (std::size_t i = 0; i < report.first_failures.size(); ++i) {
    text += std::string(i > 0 ? "," : "") +
            "{\"rank\":" + std::to_string(report.first_failures[i].first) +
            ",\"text\":" + quoted(report.first_failures[i].second) + "}";
  }
  text += "],\"timings\":[";
  for (std::size_t i = 0; i < report.timings.size(); ++i) {
    const Timing& timing = report.timings[i];
    text += std::string(i > 0 ? "," : "") + "{\"operation\":" + quoted(timing.operation) +
            ",\"bytes\":" + std::to_string(timing.bytes) +
            ",\"microseconds\":" + print("%.3f", timing.microseconds) + "}";
  }
  return text + "],\"seconds\":" + print("%.3f", report.seconds) + "}\n";
}

}  // namespace hora::smoke
