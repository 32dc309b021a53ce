// --json: what happens to a job as JSON lines on stderr, for programs.
// docs/reference/events.md lists the events; "schema" changes when one of them does.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace hora::launcher {

class EventLog {
 public:
  using Value = std::variant<std::string, std::int64_t, bool>;
  using Field = std::pair<std::string_view, Value>;

  explicit EventLog(bool enabled) : enabled_(enabled) {}

  bool enabled() const { return enabled_; }
  // One whole line: {"schema":1,"time":"2026-11-21T02:44:46.123456Z","event":NAME, fields...}.
  // Text that is not UTF-8 has its bad bytes replaced.
  void emit(std::string_view name, std::initializer_list<Field> fields) const;

 private:
  bool enabled_;
};

}  // namespace hora::launcher
