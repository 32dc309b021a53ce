// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/traceback_folder.h"

#include <optional>
#include <utility>

#include "launcher/failures/rank_exit_text.h"
#include "launcher/text/text.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kHead = "Traceback (most recent call last):";
constexpr std::string_view kThreadHead = "Exception in thread ";
constexpr std::string_view kCauseLink = "The above exception was the direct cause of the following";
constexpr std::string_view kContextLink = "During handling of the above exception, another";

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string_view without_end(std::string_view line) {
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  return line;
}

// The start of a line which may become the head of a traceback.
bool may_become_head(std::string_view line) {
  if (line.starts_with("[rank") && line.size() < 16 && !has(line, "]: ")) return true;
  const std::string_view text = without_margin(line);
  return kHead.starts_with(text) || kThreadHead.starts_with(text) || text.starts_with(kThreadHead);
}

// "hora.exceptions.HorovodInternalError: text" without the module.
std::string_view without_module(std::string_view exception) {
  const std::size_t end = exception.find_first_of(": ");
  const std::size_t dot = exception.substr(0, end).rfind('.');
  return dot == std::string_view::npos ? exception : exception.substr(dot + 1);
}

// Where it came from inside of Hora's packages explains nothing.
bool is_ours(std::string_view exception) {
  return exception.starts_with("hora.exceptions.") || exception == "KeyboardInterrupt";
}

// Code that users did not write.
bool is_library(std::string_view file) {
  return has(file, "/site-packages/") || has(file, "/dist-packages/") ||
         has(file, "/lib/python3") || file.starts_with("<frozen ");
}

std::string without_frames_of_ours(std::string_view traceback) {
  std::string out;
  bool is_own = false;
  for (std::size_t end = 0; !traceback.empty(); traceback.remove_prefix(end)) {
    end = traceback.find('\n') + 1;
    if (end == 0) end = traceback.size();
    const std::string_view line = traceback.substr(0, end);
    is_own = continues_own_frame(without_margin(line), is_own);
    if (!is_own) out += line;
  }
  return out;
}

}  // namespace

std::string TracebackFolder::feed(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const bool is_whole = end != std::string_view::npos;
    const std::string_view piece = bytes.substr(0, is_whole ? end + 1 : end);
    bytes.remove_prefix(piece.size());
    if (in_line_) {
      out += piece;
      in_line_ = !is_whole;
      continue;
    }
    line_ += piece;
    if (is_whole) {
      take_line(out);
    } else if (state_ == State::kText && !may_become_head(line_)) {
      out += std::exchange(line_, {});
      in_line_ = true;
    }
  }
  if (held_.size() + line_.size() > kMostHeldBytes) {
    state_ = State::kText;  // as it came
    out += release();
  }
  return out;
}

void TracebackFolder::take_line(std::string& out) {
  const std::string line = std::exchange(line_, {});
  const std::string_view text = without_margin(without_end(line));
  const bool is_blank = trim(text).empty();
  const bool is_indented = text.starts_with(' ') || text.starts_with('\t');
  if (text.starts_with(kHead) && state_ != State::kEnded && state_ != State::kFrames) {
    if (state_ == State::kText) begin({});
    held_ += line;
    state_ = State::kFrames;
  } else if (state_ == State::kFrames) {
    held_ += line;
    if (is_indented) {
      take_frame(text);
    } else if (!is_blank) {
      take_exception(text);
    }
  } else if (state_ == State::kEnded &&
             (text.starts_with(kCauseLink) || text.starts_with(kContextLink))) {
    held_ += line;
    state_ = State::kLinked;
  } else if ((state_ == State::kEnded || state_ == State::kLinked) && is_blank) {
    held_ += line;
  } else if (state_ != State::kText) {
    out += release();
    line_ = line;
    take_line(out);
  } else if (text.starts_with(kThreadHead)) {
    begin(line);
    state_ = State::kThread;
  } else {
    out += line;
  }
}

void TracebackFolder::begin(std::string_view line) {
  held_ = line;
  is_first_ = true;
  frame_.clear();
  any_frame_.clear();
  wants_code_ = is_users_ = false;
  reason_.clear();
}

// '  File "train.py", line 8, in step', or its line of the program.
void TracebackFolder::take_frame(std::string_view line) {
  constexpr std::size_t kMostCode = 80;
  constexpr std::string_view kFile = "  File \"";
  constexpr std::string_view kLine = "\", line ";
  const std::size_t number = line.rfind(kLine);
  if (!is_first_) return;
  if (!line.starts_with(kFile) || number == std::string_view::npos) {
    if (std::exchange(wants_code_, false))
      any_frame_ += ": " + std::string(trim(line).substr(0, kMostCode));
    if (is_users_) frame_ = any_frame_;
    return;
  }
  wants_code_ = !continues_own_frame(line, false);
  is_users_ = false;
  if (!wants_code_) return;
  const std::string_view file = line.substr(kFile.size(), number - kFile.size());
  any_frame_ = std::string(file) + ":" + std::string(line.substr(number + kLine.size()));
  is_users_ = !is_library(file);
  if (is_users_) frame_ = any_frame_;
}

void TracebackFolder::take_exception(std::string_view line) {
  if (std::exchange(is_first_, false)) reason_ = line;
  last_ = line;
  state_ = State::kEnded;
}

std::string TracebackFolder::one_line(int because_of) const {
  std::string text = "rank " + std::to_string(rank_) + " failed because of rank " +
                     std::to_string(because_of) + ": ";
  const std::string& where = frame_.empty() ? any_frame_ : frame_;
  if (!where.empty()) text += where + ": ";
  text += without_module(reason_);
  if (last_ != reason_) text += "; then " + std::string(without_module(last_));
  return text + " (--verbose: the traceback)\n";
}

std::string TracebackFolder::release() {
  std::string held = std::exchange(held_, {});
  const State state = std::exchange(state_, State::kText);
  const std::string rest = std::exchange(line_, {});
  in_line_ = !rest.empty();
  if (state != State::kEnded) return held + rest;
  const std::optional<int> left = rank_that_left(reason_);
  if (left && *left != rank_) return one_line(*left) + rest;
  return (is_ours(last_) ? without_frames_of_ours(held) : held) + rest;
}

}  // namespace hora::launcher
