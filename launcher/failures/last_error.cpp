// SPDX-License-Identifier: Apache-2.0
#include "launcher/failures/last_error.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <span>

#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

using Lines = std::span<const std::string_view>;

// A longer text after an error is what the program did next: it went on.
constexpr std::size_t kLongestMessage = 30;
constexpr std::size_t kLongestWithoutError = 12;
// "bind: Address already in use", and then "ERROR: cannot start the server".
constexpr std::size_t kLinesBeforeAnError = 2;

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_blank(std::string_view line) { return trim(line).empty(); }

bool is_indented(std::string_view line) {
  return !line.empty() && (line[0] == ' ' || line[0] == '\t');
}

// "[rank0]: " of PyTorch, and "  | " of exception groups, stand before a line of a traceback.
std::string_view without_margin(std::string_view line) {
  if (line.substr(0, 5) == "[rank") {
    const std::size_t end = line.find("]: ");
    if (end != std::string_view::npos && end < 12) return line.substr(end + 3);
  }
  const std::size_t bar = line.find_first_not_of(' ');
  if (bar != std::string_view::npos && line.substr(bar, 2) == "| ") return line.substr(bar + 2);
  return line;
}

// The line of a log: a date, "[...]", or a severity and a date ("E1128 ", "[W1128 ") in front.
bool is_log_line(std::string_view line) {
  if (line.empty()) return false;
  if (line[0] == '[') return true;
  const std::size_t first = is_digit(line[0]) ? 0 : 1;
  return line.size() > first + 4 && (first == 0 || has("EWIF", line.substr(0, 1))) &&
         std::all_of(line.begin() + first, line.begin() + first + 4, is_digit);
}

bool has_any(std::string_view text, std::initializer_list<const char*> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](const char* part) { return has(text, part); });
}

// What the program says and survives.
bool is_harmless(std::string_view line) {
  if (has(line, "NCCL WARN")) return false;  // NCCL has no other word for its errors
  if (has_any(line, {": W ", ": I ", " INFO ", "INFO:", "[INFO", " DEBUG ", "DEBUG:", "[DEBUG"}))
    return true;
  const std::string words = " " + lower(line);
  if (has_any(words,
              {"warning", " warn", "[warn", "ignoring", "(ignored", ": ignored", "(non-fatal"}))
    return true;
  const std::string_view severity = line.substr(line.substr(0, 1) == "[" ? 1 : 0, 1);
  return is_log_line(line) && !severity.empty() && has("WI", severity);
}

// A frame of a traceback, or the place of a SyntaxError; not those of faulthandler ("line 3 in f"),
// which come after the error.
bool is_frame(std::string_view line) {
  if (!is_indented(line) || trim(line).substr(0, 6) != "File \"") return false;
  const std::size_t number = line.rfind(", line ");
  return number != std::string_view::npos &&
         (has(line.substr(number), ", in ") || is_digit(line.back()));
}

// "ERROR: ...", "train.py: error: ...", "Fatal Python error: ...", "2026-11-28 12:00:00 CRITICAL
// ...".
bool announces_error(std::string_view line) {
  if (is_indented(line) || is_harmless(line)) return false;
  const std::string_view start = line.substr(0, 60);
  return has_any("^" + lower(start),
                 {"^error", "^fatal", "^panic", ": error:", ": fatal", "error while loading"}) ||
         has_any(start, {" ERROR ", "[ERROR", "CRITICAL", " FATAL "});
}

// What still appears when an exception has ended a program: by exit handlers, by the C++ runtime,
// by the shell.
bool comes_at_exit(std::string_view line) {
  return has_any("^" + std::string(line),
                 {"^wandb:", "^terminate called", "^Abort", "^Segmentation fault", "^Killed"});
}

std::size_t count_plain(Lines lines) {
  return static_cast<std::size_t>(
      std::count_if(lines.begin(), lines.end(), [](std::string_view line) {
        return !is_blank(line) && !is_indented(line) && !is_log_line(line) && !is_harmless(line) &&
               !comes_at_exit(line);
      }));
}

// Without the tracebacks of what Python ignores: errors in __del__ and atexit functions.
std::vector<std::string_view> relevant_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  bool ignored = false;
  for (const std::string_view raw : split(text, '\n')) {
    const std::string_view line = without_margin(raw);
    if (line.substr(0, 20) == "Exception ignored in") {
      ignored = true;
    } else if (!ignored) {
      lines.push_back(line);
    } else if (!is_indented(line) && line.substr(0, 9) != "Traceback") {
      ignored = false;  // the exception itself ends it
    }
  }
  return lines;
}

std::string joined(Lines lines) {
  std::string text;
  for (const std::string_view line : lines) {
    if (!is_harmless(line)) text.append(line).append("\n");
  }
  return text;
}

// The exception, and what follows of its text: libraries that end with the process write into the
// log.
std::string message_of(Lines lines) {
  std::string text(lines.front());
  for (const std::string_view line : lines.subspan(1)) {
    if (!is_harmless(line) && !is_log_line(line)) text.append("\n").append(line);
  }
  return text;
}

std::optional<std::size_t> last_index(Lines lines, bool (*matches)(std::string_view)) {
  const auto found = std::find_if(lines.rbegin(), lines.rend(), matches);
  if (found == lines.rend()) return std::nullopt;
  return static_cast<std::size_t>(std::distance(found, lines.rend()) - 1);
}

struct Traceback {
  std::size_t begin = 0;    // "Traceback (most recent call last):"
  std::size_t message = 0;  // the exception
};

std::optional<Traceback> last_traceback(Lines lines) {
  const std::optional<std::size_t> frame = last_index(lines, is_frame);
  if (!frame) return std::nullopt;
  Traceback traceback{*frame, *frame + 1};
  while (traceback.begin > 0 && is_indented(lines[traceback.begin])) --traceback.begin;
  while (traceback.message < lines.size() &&
         (is_indented(lines[traceback.message]) || is_blank(lines[traceback.message]))) {
    ++traceback.message;
  }
  if (traceback.message == lines.size()) return std::nullopt;
  return traceback;
}

// What stands above an exception that only says that something there failed; empty for others.
Lines named_cause(Lines before, std::string_view exception) {
  while (!before.empty() && is_blank(before.back())) before = before.first(before.size() - 1);
  if (has_any(exception, {"ChildFailedError", "CalledProcessError"})) return before;
  constexpr std::string_view kCause = "The above exception was the direct cause of";
  if (before.empty() || before.back().substr(0, kCause.size()) != kCause) return {};
  return before.first(before.size() - 1);
}

// Whether the program printed the traceback and went on: more follows than the message of the
// exception can have.
bool is_survived(Lines message) {
  const bool has_one_line =
      has_any(message.front(), {"ModuleNotFoundError", "MemoryError", "[Errno "});
  return count_plain(message.subspan(1)) > (has_one_line ? 0 : kLongestMessage);
}

void add_errors(Lines lines, std::vector<std::string>& errors) {
  const std::optional<Traceback> traceback = last_traceback(lines);
  const std::size_t after = traceback ? traceback->message + 1 : 0;
  if (const auto announced = last_index(lines.subspan(after), announces_error)) {
    const std::size_t at = after + *announced;
    if (count_plain(lines.subspan(at)) > kLongestMessage) return;
    errors.push_back(joined(lines.subspan(at)));
    const std::size_t context = std::min(at - after, kLinesBeforeAnError);
    errors.push_back(joined(lines.subspan(at - context, context)));
  } else if (traceback && !is_survived(lines.subspan(traceback->message))) {
    const Lines message = lines.subspan(traceback->message);
    errors.push_back(message_of(message));
    const Lines cause = named_cause(lines.first(traceback->begin), message.front());
    if (!cause.empty()) add_errors(cause, errors);
  } else {
    for (std::size_t at = lines.size();
         at-- > after && count_plain(lines.subspan(at)) <= kLongestWithoutError;) {
      if (!is_blank(lines[at])) errors.push_back(joined(lines.subspan(at, 1)));
    }
  }
}

}  // namespace

std::vector<std::string> last_errors(std::string_view text) {
  std::vector<std::string> errors;
  add_errors(relevant_lines(text), errors);
  return errors;
}

}  // namespace hora::launcher
