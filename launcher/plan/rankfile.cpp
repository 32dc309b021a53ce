// SPDX-License-Identifier: Apache-2.0
// A rank without a line, or with two, is an error: what Open MPI makes of it depends on its
// release.
#include "launcher/plan/rankfile.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "launcher/plan/core_list.h"
#include "launcher/plan/plan.h"
#include "launcher/text/few_names.h"
#include "launcher/text/spec_location.h"
#include "launcher/text/usage_error.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kExpected = "expected 'rank N=HOST slot=CORES'";

std::string place_of(std::string_view path, std::size_t number) {
  return std::string(path) + ":" + std::to_string(number);
}

// One line, word by word, which keeps the place of the last word for errors to point at. Open MPI
// allows blanks around '=' and both kinds of comments, so splitting at blanks would not do.
class LineReader {
 public:
  explicit LineReader(const SpecLine& line)
      : line_(line),
        text_(line.text.substr(0, std::min(line.text.find('#'), line.text.find("//")))) {}

  // Also at the end of a line that has been read: what is left is blanks or a comment.
  bool is_blank() { return skip(), at_ == text_.size(); }

  Result<RankLine> read() {
    RankLine out;
    out.number = line_.number;
    if (word() != "rank") return wrong(kExpected);
    const auto rank = parse_int<int>(word());
    if (!rank || *rank < 0 || *rank >= kMaxRanks) {
      return wrong("expected the number of a rank, such as 0");
    }
    out.rank = *rank;
    if (!equals_sign()) return wrong("expected '=' and the rank's host");
    HORA_TRY(read_host(out));
    if (is_blank()) return out;
    const std::string_view key = word();
    if ((key != "slot" && key != "slots") || !equals_sign()) {
      return wrong("expected slot=CORES, or the end of the line");
    }
    out.cores = word();
    // The cores stay text: what they mean depends on the host. Mistakes in them are told here,
    // though, where the file's line is known.
    if (auto cores = parse_core_list(out.cores, line_, word_at_); !cores) {
      return std::move(cores).error();
    }
    if (is_blank()) return out;
    word();
    return wrong("expected the end of the line");
  }

 private:
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }

  // Up to a blank or '='.
  std::string_view word() {
    skip();
    word_at_ = at_;
    at_ = std::min(text_.find_first_of(" \t\r=", at_), text_.size());
    return text_.substr(word_at_, at_ - word_at_);
  }

  // Not a part of word(): the manual of Open MPI writes "rank 0 = aa" here and "rank 0=aa" there.
  bool equals_sign() {
    skip();
    word_at_ = at_;
    if (at_ == text_.size() || text_[at_] != '=') return false;
    ++at_;
    return true;
  }

  Error wrong(std::string_view message) const { return spec_error(line_, word_at_, message); }

  Status read_host(RankLine& out) {
    const std::string_view name = word();
    const bool is_key = at_ < text_.size() && text_[at_] == '=';  // "rank 0= slot=1"
    if (name.empty() || is_key) {
      return wrong("expected the rank's host, or its place such as +n0");
    }
    if (name.substr(0, 1) == "+") {
      // Open MPI also has "+e", the next empty host. Which one that is depends on what ran before:
      // a file that names places is read the same way every time.
      const bool is_relative = name.substr(0, 2) == "+n" || name.substr(0, 2) == "+N";
      const auto index = parse_int<int>(name.substr(is_relative ? 2 : name.size()));
      if (!index || *index < 0) return wrong("expected a host, or its place such as +n0");
      out.relative = *index;
      return Ok{};
    }
    auto hosts = parse_host_list(name, place_of(line_.origin, line_.number));
    if (!hosts) return std::move(hosts).error();
    if (hosts->size() != 1 || hosts->front().slots) {
      return wrong("expected one host, without slots");
    }
    out.host = std::move(hosts->front());
    return Ok{};
  }

  SpecLine line_;
  std::string_view text_;  // of the line, without its comment
  std::size_t at_ = 0;
  std::size_t word_at_ = 0;
};

// "me@a" in the hostfile is the "a" of a rankfile, which mostly has no users.
bool same_host(const Host& a, const Host& b) {
  return equals_ignoring_case(a.name, b.name) && (b.user.empty() || a.user == b.user);
}

// A few of them: the list may be long, and the first ones show what its names look like.
std::string names_of(const std::vector<Host>& hosts) {
  std::vector<std::string> names;
  for (const Host& host : hosts) names.push_back(host.name);
  return few_names(names);
}

Result<std::size_t> find_host(const RankLine& line, std::string_view path,
                              const std::vector<Host>& hosts) {
  const std::string where = place_of(path, line.number) + ": ";
  if (line.relative) {
    // Counted over all hosts of the list, used or not, as users count them there.
    const auto index = static_cast<std::size_t>(*line.relative);
    if (index < hosts.size()) return index;
    return usage(where + "there is no +n" + std::to_string(index) + "; " +
                 (hosts.empty() ? "the job names no hosts, give them with -H or --hostfile"
                                : "the job's hosts are +n0 to +n" +
                                      std::to_string(hosts.size() - 1) + ": " + names_of(hosts)));
  }
  const auto found = std::find_if(hosts.begin(), hosts.end(),
                                  [&line](const Host& host) { return same_host(host, line.host); });
  if (found != hosts.end()) return static_cast<std::size_t>(found - hosts.begin());
  return usage(where + quote(format_host(line.host)) +
               " is not one of the job's hosts: " + names_of(hosts));
}

// In the order of the ranks.
std::vector<Host> hosts_of(const std::vector<RankLine>& lines) {
  std::vector<Host> hosts;
  for (const RankLine& line : lines) {
    if (line.relative) continue;
    const bool known = std::any_of(hosts.begin(), hosts.end(), [&line](const Host& host) {
      return same_host(host, line.host);
    });
    if (!known) hosts.push_back(line.host);
  }
  return hosts;
}

}  // namespace

// Gaps are looked for at the end, when all lines are known.
Result<std::vector<RankLine>> parse_rankfile(std::string_view text, std::string_view path) {
  // Ranks stand in any order; the map sorts them and finds those that are there twice.
  std::map<int, RankLine> lines;
  std::size_t number = 0;
  for (const std::string_view each : split(text, '\n')) {
    const SpecLine line{path, each, ++number};
    LineReader reader(line);
    if (reader.is_blank()) continue;
    auto read = reader.read();
    if (!read) return std::move(read).error();
    const auto [known, is_new] = lines.try_emplace(read->rank, *read);
    if (!is_new) {
      return spec_error(line, 0,
                        "rank " + std::to_string(read->rank) + " has a line already, line " +
                            std::to_string(known->second.number));
    }
  }
  std::vector<RankLine> out;
  for (auto& [rank, line] : lines) {
    if (rank != static_cast<int>(out.size())) {
      return usage(std::string(path) + ": rank " + std::to_string(out.size()) +
                   " has no line; each rank from 0 to " + std::to_string(lines.rbegin()->first) +
                   " needs one");
    }
    out.push_back(std::move(line));
  }
  if (out.empty()) return usage(std::string(path) + ": no ranks; " + std::string(kExpected));
  return out;
}

Status seat_ranks(const std::vector<RankLine>& lines, std::string_view path, JobSpec& job) {
  // Open MPI starts fewer ranks than lines where -np is smaller. Half of a file is a mistake more
  // often than a wish.
  const auto ranks = static_cast<int>(lines.size());
  if (job.num_proc != 0 && job.num_proc != ranks) {
    return usage("-np asks for " + counted(job.num_proc, "rank") + ", and " + std::string(path) +
                 " has lines for " + std::to_string(ranks));
  }
  // Hosts that are named only here have the slots that are filled here.
  const bool has_relative = std::any_of(
      lines.begin(), lines.end(), [](const RankLine& line) { return line.relative.has_value(); });
  std::vector<Host> hosts = job.hosts.empty() && !has_relative ? hosts_of(lines) : job.hosts;
  std::vector<int> filled(hosts.size(), 0);
  std::vector<RankSeat> seats;
  for (const RankLine& line : lines) {
    const auto host = find_host(line, path, hosts);
    if (!host) return host.error();
    const Host& there = hosts[*host];
    // A host without a number was named without a limit in mind, as in -H a,b.
    const int slots = there.slots.value_or(job.slots_per_host.value_or(ranks));
    if (++filled[*host] > slots) {
      return usage(place_of(path, line.number) + ": " + there.name + " has " +
                   counted(slots, "slot") + ", and this is one rank more; give it more slots");
    }
    seats.push_back({*host, line.cores});
  }
  // From here on every host has a number: what counts slots later need not know of rankfiles.
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (!hosts[i].slots) hosts[i].slots = filled[i];
  }
  job.hosts = std::move(hosts);
  job.seats = std::move(seats);
  job.num_proc = ranks;
  return Ok{};
}

}  // namespace hora::launcher
