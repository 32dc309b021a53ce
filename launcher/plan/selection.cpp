// SPDX-License-Identifier: Apache-2.0
#include "launcher/plan/selection.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "launcher/plan/plan.h"
#include "launcher/text/text.h"
#include "launcher/text/user_input.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

// Expands "n[01-64]" and "rack[1,2]-n[1-8]" as Slurm and ClusterShell do: a leading zero fixes the
// width, and several ranges multiply. The number of names is checked before any is made.

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

// As in DeepSpeed, slots are GPUs here, counted from 0: what is named of a host must be among its
// slots, or the list was written for other hosts.

namespace {

// After the last ':' of a term, unless that is part of an IPv6 address; npos: none.
std::size_t colon_of(std::string_view term) {
  const std::size_t colon = term.rfind(':');
  const std::size_t bracket = term.rfind(']');
  const bool is_address =
      colon != std::string_view::npos && bracket != std::string_view::npos && colon < bracket;
  return is_address ? std::string_view::npos : colon;
}

// "0,2-3", no number twice.
// A number twice would be two ranks on one GPU, which no list says on purpose.
std::optional<std::vector<int>> read_gpus(std::string_view text) {
  std::vector<int> gpus;
  for (const std::string_view item : split(text, ',')) {
    const std::size_t dash = item.find('-');
    const auto first = parse_int<int>(item.substr(0, dash));
    const auto last =
        dash == std::string_view::npos ? first : parse_int<int>(item.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMaxSlotsPerHost) {
      return std::nullopt;
    }
    for (int gpu = *first; gpu <= *last; ++gpu) gpus.push_back(gpu);
  }
  std::vector<int> sorted = gpus;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return std::nullopt;
  return gpus;
}

// The effect of one option on one host at a time.
class Filter {
 public:
  Filter(std::string_view origin, const std::vector<Host>& hosts, std::optional<int> otherwise)
      : origin_(origin), hosts_(hosts), otherwise_(otherwise) {}

  // The term about each host, if there is one.
  Result<std::vector<const HostTerm*>> match(const std::vector<HostTerm>& terms) const {
    std::vector<const HostTerm*> found(hosts_.size(), nullptr);
    for (const HostTerm& term : terms) {
      const auto host = std::find_if(hosts_.begin(), hosts_.end(), [&term](const Host& each) {
        return equals_ignoring_case(each.name, term.host);
      });
      if (host == hosts_.end()) {
        return wrong(quote(term.host) + " is not one of the job's hosts: " + names());
      }
      // Which of the two would count? DeepSpeed takes the last one, without a word.
      const HostTerm*& known = found[static_cast<std::size_t>(host - hosts_.begin())];
      if (known != nullptr) return wrong("host " + host->name + " is named twice");
      known = &term;
      HORA_TRY(check_gpus(*host, term.gpus));
    }
    return found;
  }

  std::optional<int> slots_of(const Host& host) const {
    return host.slots ? host.slots : otherwise_;
  }

  Error wrong(const std::string& message) const {
    return usage(std::string(origin_) + ": " + message);
  }

 private:
  // A host without a number of slots may have any: its driver reports them.
  Status check_gpus(const Host& host, const std::vector<int>& gpus) const {
    const auto slots = slots_of(host);
    if (gpus.empty() || !slots) return Ok{};
    const int largest = *std::max_element(gpus.begin(), gpus.end());
    if (largest < *slots) return Ok{};
    return wrong("host " + host.name + " has " + counted(*slots, "slot") +
                 ", counted from 0; there is no " + std::to_string(largest));
  }

  std::string names() const {
    std::vector<std::string> out;
    for (const Host& host : hosts_) out.push_back(host.name);
    return few_names(out);
  }

  std::string_view origin_;
  const std::vector<Host>& hosts_;
  std::optional<int> otherwise_;
};

// One rank for each GPU that is left, unless the user asks for fewer.
Host with_gpus(Host host, std::vector<int> gpus) {
  host.slots = static_cast<int>(gpus.size());
  host.gpus = std::move(gpus);
  return host;
}

}  // namespace

Result<std::vector<HostTerm>> parse_host_terms(std::string_view text, std::string_view origin) {
  std::vector<HostTerm> terms;
  std::size_t at = 0;
  for (const std::string_view term : split(text, '@')) {
    const std::size_t colon = colon_of(term);
    std::vector<int> gpus;
    if (colon != std::string_view::npos) {
      auto read = read_gpus(term.substr(colon + 1));
      if (!read) {
        return spec_error({origin, text, 0}, at + colon + 1,
                          "expected GPUs, each once, such as 0,2 or 0-3; '@' is before the next "
                          "host");
      }
      gpus = std::move(*read);
    }
    // Names are those of -H: with users, brackets, ranges and commas.
    auto hosts = parse_host_list(term.substr(0, colon), origin);
    if (!hosts) return std::move(hosts).error();
    for (Host& host : *hosts) {
      // "a:0,b:2"
      if (host.slots) {
        return spec_error({origin, text, 0}, at, "expected '@' between two hosts with GPUs");
      }
      terms.push_back({std::move(host.name), gpus});
    }
    at += term.size() + 1;
  }
  return terms;
}

Result<std::vector<Host>> include_hosts(const std::vector<Host>& hosts,
                                        const std::vector<HostTerm>& terms,
                                        std::optional<int> otherwise) {
  const Filter filter("--include", hosts, otherwise);
  const auto found = filter.match(terms);
  if (!found) return found.error();
  // The order of the hosts, not of the list: rank 0 stays where it would be without the option.
  std::vector<Host> out;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const HostTerm* const term = (*found)[i];
    if (term == nullptr) continue;
    out.push_back(term->gpus.empty() ? hosts[i] : with_gpus(hosts[i], term->gpus));
  }
  return out;
}

Result<std::vector<Host>> exclude_hosts(const std::vector<Host>& hosts,
                                        const std::vector<HostTerm>& terms,
                                        std::optional<int> otherwise) {
  const Filter filter("--exclude", hosts, otherwise);
  const auto found = filter.match(terms);
  if (!found) return found.error();
  std::vector<Host> out;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const HostTerm* const term = (*found)[i];
    if (term != nullptr && term->gpus.empty()) continue;  // the whole host
    if (term == nullptr) {
      out.push_back(hosts[i]);
      continue;
    }
    const auto slots = filter.slots_of(hosts[i]);
    if (!slots) {
      return filter.wrong("the slots of host " + hosts[i].name +
                          " are not known; give them, such as -H " + hosts[i].name + ":8");
    }
    // All GPUs are named, not the first ones counted: those left out may be in the middle.
    std::vector<int> left;
    for (int gpu = 0; gpu < *slots; ++gpu) {
      if (std::find(term->gpus.begin(), term->gpus.end(), gpu) == term->gpus.end()) {
        left.push_back(gpu);
      }
    }
    if (!left.empty()) out.push_back(with_gpus(hosts[i], std::move(left)));
  }
  // --include cannot come here: each of its terms names a host.
  if (out.empty()) return filter.wrong("no host is left");
  return out;
}

// Ranges stay ranges: "0-999999" is as short to keep and to search as it is to type.

Result<RankList> RankList::parse(std::string_view text, std::string_view origin) {
  RankList list;
  if (text == "none") return list;
  const SpecLine line{origin, text, 0};
  std::size_t offset = 0;
  for (const std::string_view item : split(text, ',')) {
    const std::size_t dash = item.find('-');
    const auto first = parse_int<int>(item.substr(0, dash));
    // "3" is the range from 3 to 3.
    const auto last =
        dash == std::string_view::npos ? first : parse_int<int>(item.substr(dash + 1));
    if (!first || !last || *first < 0) {
      return spec_error(line, offset,
                        "expected ranks such as 0,4-7, or none, found " + quote(item));
    }
    if (*last >= kMaxRanks) {
      return spec_error(line, offset,
                        "rank " + std::to_string(*last) + " is too large; a job has at most " +
                            std::to_string(kMaxRanks) + " ranks");
    }
    if (*last < *first) {
      return spec_error(line, offset, "the range " + quote(item) + " ends before it begins");
    }
    list.ranges_.emplace_back(*first, *last);
    offset += item.size() + 1;
  }
  return list;
}

// A list may name each rank many times over.
std::optional<std::int64_t> RankList::index_of(int rank) const {
  std::int64_t before = 0;
  for (const auto& [first, last] : ranges_) {
    if (rank >= first && rank <= last) return before + rank - first;
    before += last - first + 1;
  }
  return std::nullopt;
}

int RankList::largest() const {
  int largest = -1;
  for (const auto& range : ranges_) largest = std::max(largest, range.second);
  return largest;
}

}  // namespace hora::launcher
