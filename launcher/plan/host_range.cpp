// SPDX-License-Identifier: Apache-2.0
// Expands "n[01-64]" and "rack[1,2]-n[1-8]" as Slurm and ClusterShell do: a leading zero fixes the
// width, and several ranges multiply. The number of names is checked before any is made.
#include "launcher/plan/host_range.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

namespace hora::launcher {

namespace {

struct Span {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::size_t width = 0;  // zero-padded to at least this many digits
};

// A text and the numbers that follow it. The last part of a pattern may have no numbers.
struct Part {
  std::string text;
  std::vector<Span> spans;
};

// 18 digits always fit into 64 bits.
constexpr std::size_t kMaxDigits = 18;
// A name has one or two ranges; each costs a pass over all names.
constexpr std::size_t kMostParts = 16;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Expander {
 public:
  Expander(std::string_view pattern, std::size_t limit) : pattern_(pattern), limit_(limit) {}

  std::variant<std::vector<std::string>, RangeProblem> run() {
    while (at_ < pattern_.size() && !problem_) parse_part();
    if (problem_) return *problem_;
    std::vector<std::string> names{""};
    for (const Part& part : parts_) names = multiply(names, part);
    return names;
  }

 private:
  void parse_part() {
    const std::size_t open = pattern_.find_first_of("[]", at_);
    Part part;
    part.text = pattern_.substr(at_, open == std::string_view::npos ? open : open - at_);
    at_ += part.text.size();
    if (at_ < pattern_.size()) {
      if (pattern_[at_] == ']') return fail(at_, "']' without a '[' before it");
      open_ = at_++;
      parse_spans(part.spans);
      if (problem_) return;
      count_names(part.spans);
    }
    // Checked after the part is parsed, so that a syntax error wins.
    if (parts_.size() == kMostParts) return fail(open_, "too many ranges in one name");
    parts_.push_back(std::move(part));
  }

  void parse_spans(std::vector<Span>& spans) {
    for (;;) {
      const std::size_t start = at_;
      Span span;
      const auto first = parse_number();
      if (!first) return;
      span.first = span.last = *first;
      // "1-10" has no fixed width, "01-10" has two digits.
      if (at_ - start > 1 && pattern_[start] == '0') span.width = at_ - start;
      if (at_ < pattern_.size() && pattern_[at_] == '-') {
        ++at_;
        const std::size_t last_start = at_;
        const auto last = parse_number();
        if (!last) return;
        if (*last < span.first)
          return fail(last_start, "a range must count upwards: 01-64, not 64-01");
        span.last = *last;
      }
      spans.push_back(span);
      if (at_ >= pattern_.size())
        return fail(open_, "'[' has no ']'; a range is n[01-64] or n[1,3,5-7]");
      const char next = pattern_[at_++];
      if (next == ']') return;
      if (next != ',') return fail(at_ - 1, "expected '-', ',' or ']' in a range");
    }
  }

  std::optional<std::uint64_t> parse_number() {
    const std::size_t start = at_;
    while (at_ < pattern_.size() && is_digit(pattern_[at_])) ++at_;
    if (at_ == start) {
      if (at_ >= pattern_.size()) {
        fail(open_, "'[' has no ']'; a range is n[01-64] or n[1,3,5-7]");
      } else {
        fail(at_, "expected a number in a range, such as n[01-64]");
      }
      return std::nullopt;
    }
    if (at_ - start > kMaxDigits) {
      fail(start, "this number is too large for a range");
      return std::nullopt;
    }
    std::uint64_t value = 0;
    std::from_chars(pattern_.data() + start, pattern_.data() + at_, value);
    return value;
  }

  // Runs before anything is expanded: the product of all ranges must stay within the limit. The
  // division avoids an overflow.
  void count_names(const std::vector<Span>& spans) {
    std::uint64_t here = 0;
    for (const Span& span : spans) {
      here += span.last - span.first + 1;
      if (here > limit_) break;
    }
    if (here > limit_ || total_ > limit_ / here) {
      return fail(open_, "this range names more than " + std::to_string(limit_) + " hosts");
    }
    total_ *= here;
  }

  static std::vector<std::string> multiply(const std::vector<std::string>& names,
                                           const Part& part) {
    std::vector<std::string> out;
    for (const std::string& name : names) {
      if (part.spans.empty()) out.push_back(name + part.text);
      for (const Span& span : part.spans) {
        for (std::uint64_t number = span.first; number <= span.last; ++number) {
          std::string digits = std::to_string(number);
          if (digits.size() < span.width) digits.insert(0, span.width - digits.size(), '0');
          out.push_back(name + part.text + digits);
        }
      }
    }
    return out;
  }

  // The first problem is the one to report.
  void fail(std::size_t offset, std::string message) {
    if (!problem_) problem_ = RangeProblem{offset, std::move(message)};
  }

  std::string_view pattern_;
  std::size_t limit_;
  std::size_t at_ = 0;
  std::size_t open_ = 0;  // of the range being read
  std::uint64_t total_ = 1;
  std::vector<Part> parts_;
  std::optional<RangeProblem> problem_;
};

}  // namespace

std::variant<std::vector<std::string>, RangeProblem> expand_host_range(std::string_view pattern,
                                                                       std::size_t limit) {
  return Expander(pattern, limit).run();
}

}  // namespace hora::launcher
