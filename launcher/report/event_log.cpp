// SPDX-License-Identifier: Apache-2.0
#include "launcher/report/event_log.h"

#include <chrono>
#include <cstdio>
#include <ctime>

#include <nlohmann/json.hpp>

namespace hora::launcher {

namespace {

std::string rfc3339_now() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(
                          now - std::chrono::system_clock::from_time_t(seconds))
                          .count();
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc);
  char text[64];
  std::snprintf(text, sizeof text, "%s.%06lldZ", date, static_cast<long long>(micros));
  return text;
}

}  // namespace

std::string EventLog::line(std::string_view name, std::initializer_list<Field> fields) {
  nlohmann::ordered_json event;
  event["schema"] = 1;
  event["time"] = rfc3339_now();
  event["event"] = name;
  for (const auto& [key, value] : fields) {
    // Numbers stay numbers in JSON, not texts of digits.
    std::visit([&, key = std::string(key)](const auto& v) { event[key] = v; }, value);
  }
  // A rank's text may be cut within a character: replaced, not thrown at.
  return event.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void EventLog::take(const std::string& line) {
  if (enabled_) write_(line);
  if (!keep_) return;
  // For the record. The newest stay: a job of weeks may have more events than memory should hold.
  constexpr std::size_t kMost = 2000;
  if (kept_.size() == kMost) kept_.pop_front();
  kept_.push_back(line);
}

}  // namespace hora::launcher
