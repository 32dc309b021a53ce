// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/os/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>

// The only file that includes spdlog, header-only, so that a static program can use it.
#define SPDLOG_LEVEL_NAMES \
  { "trace", "debug", "info", "warn", "error", "critical", "off" }
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "rendezvous/base/text.h"

namespace hora::os {

namespace {

constexpr std::array<std::string_view, 6> kNames = {"trace", "debug", "info",
                                                    "warn",  "error", "off"};

// Atomic, because any thread may ask while another one sets it.
std::atomic<LogLevel> g_level{LogLevel::kWarn};

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return spdlog::level::trace;
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::err;
}

// The colours of spdlog's own sink.
constexpr std::array<std::string_view, 6> kColours = {
    "\033[37m", "\033[36m", "\033[32m", "\033[33m\033[1m", "\033[31m\033[1m", ""};

// The format of log.h, in spdlog's letters: level, then component and message.
constexpr const char* kPlain = "%^%l%$ %v";
constexpr const char* kTimed = "%Y-%m-%d %H:%M:%S.%f %^%l%$ %v";

// For a sink, which gets finished lines; spdlog colours its own.
std::string level_word(LogLevel level) {
  std::string word(log_level_name(level));
  if (!colour_wanted(STDERR_FILENO)) return word;
  return std::string(kColours[static_cast<std::size_t>(level)]) + word + "\033[m";
}

struct Output {
  std::mutex mutex;
  LogSink sink;
  std::unique_ptr<spdlog::logger> logger;

  Output() {
    auto colours =
        colour_wanted(STDERR_FILENO) ? spdlog::color_mode::always : spdlog::color_mode::never;
    logger = std::make_unique<spdlog::logger>(
        "hora", std::make_shared<spdlog::sinks::stderr_color_sink_st>(colours));
    logger->set_pattern(kPlain);
    logger->set_level(spdlog::level::trace);  // log() has already checked the level
    // A log that is lost in a crash is of no use.
    logger->flush_on(spdlog::level::trace);
  }
};

// Never destroyed, because a thread may log while the process ends.
Output& output() {
  static Output* const instance = new Output;
  return *instance;
}

}  // namespace

std::string_view log_level_name(LogLevel level) { return kNames[static_cast<std::size_t>(level)]; }

std::optional<LogLevel> parse_log_level(std::string_view text) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (equals_ignoring_case(text, kNames[i])) return static_cast<LogLevel>(i);
  }
  // The two names of Horovod's HOROVOD_LOG_LEVEL that differ.
  if (equals_ignoring_case(text, "warning")) return LogLevel::kWarn;
  if (equals_ignoring_case(text, "fatal")) return LogLevel::kError;
  return std::nullopt;
}

// Relaxed: the level guards no other data.
void set_log_level(LogLevel level) { g_level.store(level, std::memory_order_relaxed); }

bool log_enabled(LogLevel level) {
  return level != LogLevel::kOff && level >= g_level.load(std::memory_order_relaxed);
}

void log(LogLevel level, std::string_view component, std::string_view message) {
  if (!log_enabled(level)) return;
  Output& out = output();
  // The lock covers both outputs, so no line goes to a sink that has just been removed.
  std::lock_guard lock(out.mutex);
  std::string line;
  // One allocation per line.
  line.reserve(component.size() + 2 + message.size());
  line.append(component).append(": ").append(message);
  // The sink gets the line that spdlog would have written.
  if (out.sink) return out.sink(level_word(level) + " " + line + "\n");
  // A full disk or a closed stderr must not end the job; spdlog reports it once and continues.
  out.logger->log(to_spdlog(level), line);
}

void set_log_time(bool shown) {
  Output& out = output();
  // The pattern belongs to the logger, which another thread may be using at this moment.
  std::lock_guard lock(out.mutex);
  out.logger->set_pattern(shown ? kTimed : kPlain);
}

void set_log_sink(LogSink sink) {
  Output& out = output();
  std::lock_guard lock(out.mutex);
  out.sink = std::move(sink);
}

bool colour_wanted(int fd) {
  const char* no_colour = std::getenv("NO_COLOR");
  if (no_colour != nullptr && *no_colour != '\0') return false;
  const char* terminal = std::getenv("TERM");
  return ::isatty(fd) == 1 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

}  // namespace hora::os
