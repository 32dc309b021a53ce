// SPDX-License-Identifier: Apache-2.0
// Puts a prefix before each line of a rank. A line ends with '\n', '\r' or '\r\n', since progress
// bars use a lone '\r'; a '\r' at the end of a read may be half of a '\r\n' that arrives in two
// pieces.
#include "launcher/output/line_tagger.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <utility>

namespace hora::launcher {

namespace {

constexpr std::size_t kNone = std::string_view::npos;

std::size_t find_byte(std::string_view bytes, std::size_t from, char byte) {
  if (from >= bytes.size()) return kNone;
  const void* found = std::memchr(bytes.data() + from, byte, bytes.size() - from);
  return found == nullptr
             ? kNone
             : static_cast<std::size_t>(static_cast<const char*>(found) - bytes.data());
}

}  // namespace

LineTagger::LineTagger(int rank, OutputStream stream, bool with_prefix)
    : stream_(stream), with_prefix_(with_prefix) {
  relabel(rank);
}

void LineTagger::relabel(int rank) {
  prefix_ =
      "[" + std::to_string(rank) + (stream_ == OutputStream::kStderr ? "]<stderr>:" : "]<stdout>:");
}

std::string LineTagger::prefix(std::string_view timestamp) const {
  return with_prefix_ ? std::string(timestamp) + prefix_ : std::string();
}

// A segment is the part of a line between two ends; only its first piece gets the prefix.
void LineTagger::emit(std::string_view bytes, bool ends_segment, std::string_view timestamp,
                      std::string& out) {
  if (with_prefix_ && !in_segment_) out.append(timestamp).append(prefix_);
  out.append(held_).append(bytes);
  held_.clear();
  in_segment_ = !ends_segment;
}

void LineTagger::feed(std::string_view bytes, std::string_view timestamp, std::string& out) {
  if (bytes.empty()) return;
  const bool interrupted = std::exchange(interrupted_, false);
  // The last read ended in '\r' and was printed; a '\n' now belongs to it, unless other output came
  // in between.
  if (after_return_) {
    after_return_ = false;
    if (bytes.front() == '\n' && !interrupted) {
      out += '\n';
      bytes.remove_prefix(1);
    }
  } else if (!held_.empty() && held_.back() == '\r') {
    const std::size_t newline = bytes.front() == '\n' ? 1 : 0;
    emit(bytes.substr(0, newline), true, timestamp, out);
    bytes.remove_prefix(newline);
  }
  const bool is_small = bytes.size() < kSmallWriteBytes;
  std::size_t start = 0;
  // Each search result is kept until it has been passed, so a text without '\r' is searched once.
  std::size_t next_return = find_byte(bytes, 0, '\r');
  while (start < bytes.size()) {
    if (next_return != kNone && next_return < start) next_return = find_byte(bytes, start, '\r');
    // Search up to the next '\r' at most, so that a text without '\n' is not searched to its end
    // each time.
    std::size_t end = find_byte(bytes.substr(0, next_return), start, '\n');
    if (end == kNone && next_return == kNone) break;
    if (end == kNone) {
      end = next_return;
      if (end + 1 == bytes.size()) {
        // A small write that ends in '\r' is a progress bar: show it at once. In a large one the
        // '\n' is probably on its way.
        if (!is_small) break;
        after_return_ = true;
      } else if (bytes[end + 1] == '\n') {
        ++end;
      }
    }
    emit(bytes.substr(start, end + 1 - start), true, timestamp, out);
    start = end + 1;
  }
  held_.append(bytes.substr(start));
  // A line without an end is printed in pieces, so that it cannot fill the memory.
  if (held_.size() > kMaxHeldBytes && held_.back() != '\r') emit({}, false, timestamp, out);
}

bool LineTagger::finish(std::string_view timestamp, std::string& out) {
  const bool is_unterminated = !held_.empty() || ((in_segment_ || after_return_) && !interrupted_);
  if (!held_.empty()) emit({}, true, timestamp, out);
  in_segment_ = false;
  after_return_ = false;
  interrupted_ = false;
  return is_unterminated;
}

std::string format_timestamp(int weekday, int month, int day, int hour, int minute, int second,
                             int year) {
  static constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%s %s %2d %02d:%02d:%02d %d",
                kDays[static_cast<std::size_t>(std::clamp(weekday, 0, 6))],
                kMonths[static_cast<std::size_t>(std::clamp(month, 0, 11))], day, hour, minute,
                second, year);
  return text.data();
}

}  // namespace hora::launcher
