// SPDX-License-Identifier: Apache-2.0
// Puts a prefix before each line of a rank. A line ends with '\n', '\r' or '\r\n', since progress
// bars use a lone '\r'; a '\r' at the end of a read may be half of a '\r\n' that arrives in two
// pieces.
#include "launcher/output/line_tagger.h"

#include <algorithm>
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

// The start of a character of UTF-8 whose other bytes have not come yet.
std::size_t half_character(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(text.size(), 3); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0u) == 0x80u) continue;
    const std::size_t length = byte >= 0xF0u ? 4 : byte >= 0xE0u ? 3 : byte >= 0xC0u ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

// An escape sequence that has begun: CSI up to its final byte, the others of two bytes.
std::size_t half_sequence(std::string_view text) {
  constexpr std::size_t kLongest = 64;
  const std::size_t escape = text.rfind('\033');
  if (escape == kNone || text.size() - escape > kLongest) return 0;
  const std::string_view sequence = text.substr(escape);
  if (sequence.size() == 1) return 1;
  if (sequence[1] != '[') return 0;
  const bool ended = std::any_of(sequence.begin() + 2, sequence.end(),
                                 [](char byte) { return byte >= '@' && byte <= '~'; });
  return ended ? 0 : sequence.size();
}

}  // namespace

bool LineTagger::is_hidden(std::string_view segment) const {
  if (filter_ == nullptr || kept_) return false;
  while (segment.ends_with('\n') || segment.ends_with('\r')) segment.remove_suffix(1);
  return !filter_->shows(segment);
}

// A segment is the part of a line between two ends; only its first piece gets the prefix.
void LineTagger::emit(std::string_view bytes, bool ends_segment, std::string_view prefix,
                      std::string& out) {
  const bool begins = !in_segment_;
  if (begins && filter_ != nullptr) {
    hidden_ = held_.empty() ? is_hidden(bytes) : is_hidden(held_ + std::string(bytes));
    kept_ = false;
  }
  if (!hidden_) out.append(begins ? prefix : std::string_view()).append(held_).append(bytes);
  held_.clear();
  in_segment_ = !ends_segment;
}

std::string LineTagger::unfinished(std::string_view prefix) const {
  std::string_view text = held_;
  text.remove_suffix(half_character(text));
  text.remove_suffix(half_sequence(text));
  while (!text.empty() && text.back() == '\r') text.remove_suffix(1);
  if (text.empty() || (in_segment_ ? hidden_ : is_hidden(text))) return {};
  return std::string(in_segment_ ? std::string_view() : prefix).append(text);
}

// Of what is held, which may end in the line's end or in half of it.
void LineTagger::keep_last_state() {
  if (is_data_ || in_segment_) return;
  const std::size_t last = held_.find_last_not_of("\r\n");
  if (last == kNone) return;
  const std::size_t replaced = held_.rfind('\r', last);
  if (replaced != kNone) held_.erase(0, replaced + 1);
}

void LineTagger::feed_lines(std::string_view bytes, std::string_view prefix, std::string& out) {
  constexpr std::size_t kManyStates = 16 * 1024;
  std::size_t start = 0;
  for (std::size_t end = 0; (end = find_byte(bytes, start, '\n')) != kNone; start = end + 1) {
    held_.append(bytes.substr(start, end + 1 - start));
    is_data_ = is_data_ || find_byte(held_, 0, '\0') != kNone;
    keep_last_state();
    emit({}, true, prefix, out);
  }
  held_.append(bytes.substr(start));
  is_data_ = is_data_ || find_byte(bytes, start, '\0') != kNone;
  if (held_.size() > kManyStates && find_byte(bytes, start, '\r') != kNone) keep_last_state();
  if (held_.size() > kMaxHeldBytes) emit({}, false, prefix, out);
}

void LineTagger::feed(std::string_view bytes, std::string_view prefix, std::string& out) {
  if (bytes.empty()) return;
  if (returns_ == Returns::kReplaceLine) return feed_lines(bytes, prefix, out);
  const bool interrupted = std::exchange(interrupted_, false);
  // The last read ended in '\r' and was printed; a '\n' now belongs to it, unless other output came
  // in between.
  if (after_return_) {
    after_return_ = false;
    if (bytes.front() == '\n' && (!interrupted || hidden_)) {
      if (!hidden_) out += '\n';
      bytes.remove_prefix(1);
    }
  } else if (!held_.empty() && held_.back() == '\r') {
    const std::size_t newline = bytes.front() == '\n' ? 1 : 0;
    emit(bytes.substr(0, newline), true, prefix, out);
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
    emit(bytes.substr(start, end + 1 - start), true, prefix, out);
    start = end + 1;
  }
  held_.append(bytes.substr(start));
  // A line without an end is printed in pieces, so that it cannot fill the memory.
  if (held_.size() > kMaxHeldBytes && held_.back() != '\r') emit({}, false, prefix, out);
}

bool LineTagger::finish(std::string_view prefix, std::string& out) {
  const bool is_unterminated = !held_.empty() || ((in_segment_ || after_return_) && !interrupted_);
  if (returns_ == Returns::kReplaceLine) keep_last_state();
  if (!held_.empty()) emit({}, true, prefix, out);
  in_segment_ = false;
  after_return_ = false;
  interrupted_ = false;
  return is_unterminated && !hidden_;
}

}  // namespace hora::launcher
