// SPDX-License-Identifier: Apache-2.0
// The log: lines about Hora itself, on stderr. A job's own output never comes here.
//
//   [date time] level component: message
//
// error = the job fails; warn = it continues, but differently than asked; info = once per phase;
// debug = per host; trace = per frame or operation. Any thread may log.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

namespace hora::os {

enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kError, kOff };

std::string_view log_level_name(LogLevel level);  // "trace" .. "error", "off"
// Accepts those names in any case; also "warning" and "fatal" (as error), which Horovod's variables
// use.
std::optional<LogLevel> parse_log_level(std::string_view text);

// kWarn until set.
void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);

// Whether lines on stderr begin with the local time, in microseconds. Off until set: the launcher
// writes to its user at once, the runtime into a file of many ranks.
void set_log_time(bool shown);

// Writes one line if the level is enabled; lines of different threads never mix.
void log(LogLevel level, std::string_view component, std::string_view message);

inline void log_debug(std::string_view component, std::string_view message) {
  log(LogLevel::kDebug, component, message);
}
inline void log_info(std::string_view component, std::string_view message) {
  log(LogLevel::kInfo, component, message);
}
inline void log_warn(std::string_view component, std::string_view message) {
  log(LogLevel::kWarn, component, message);
}
inline void log_error(std::string_view component, std::string_view message) {
  log(LogLevel::kError, component, message);
}

// Sends the lines to `sink` instead of stderr (the launcher must not block on its reader); an empty
// sink restores stderr. It runs under a lock, so it must not log.
using LogSink = std::function<void(std::string line)>;
void set_log_sink(LogSink sink);

// Whether lines on a file descriptor may have colours: it is a terminal that is not dumb, and the
// environment has no NO_COLOR (https://no-color.org).
bool colour_wanted(int fd);

}  // namespace hora::os
