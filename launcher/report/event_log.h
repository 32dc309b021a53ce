// SPDX-License-Identifier: Apache-2.0
// --json: what happens to a job as JSON lines, for programs.
// docs/reference/events.md lists the events; "schema" changes when one of them does. One thread at
// a time; `write` is called before emit() returns.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace hora::launcher {

class EventLog {
 public:
  using Value = std::variant<std::string, std::int64_t, bool>;
  using Field = std::pair<std::string_view, Value>;

  // `enabled`: `write` gets each line. `keep`: the newest are kept, too, for the record of the job.
  EventLog(bool enabled, bool keep, std::function<void(std::string)> write)
      : enabled_(enabled), keep_(keep), write_(std::move(write)) {}

  bool enabled() const { return enabled_; }
  bool listens() const { return enabled_ || keep_; }  // else a line would go nowhere
  std::vector<std::string> kept() const { return {kept_.begin(), kept_.end()}; }
  void emit(std::string_view name, std::initializer_list<Field> fields) {
    if (listens()) take(line(name, fields));
  }
  // One whole line: {"schema":1,"time":"2026-11-21T02:44:46.123456Z","event":NAME, fields...}.
  // Text that is not UTF-8 has its bad bytes replaced.
  static std::string line(std::string_view name, std::initializer_list<Field> fields);
  void take(const std::string& line);

 private:
  bool enabled_;
  bool keep_;
  std::function<void(std::string)> write_;
  std::deque<std::string> kept_;
};

}  // namespace hora::launcher
