// SPDX-License-Identifier: Apache-2.0
#include "launcher/plan/plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "launcher/plan/binding.h"
#include "launcher/text/text.h"
#include "launcher/text/user_input.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

std::int64_t count_slots(const std::vector<Host>& hosts) {
  std::int64_t slots = 0;
  for (const Host& host : hosts) slots += host.slots.value_or(0);
  return slots;
}

Status check_rank_count(std::int64_t slots) {
  if (slots <= kMaxRanks) return Ok{};
  return make_error(ErrorCode::kUsage, "the hosts offer " + std::to_string(slots) +
                                           " slots; a job has at most " +
                                           std::to_string(kMaxRanks) + " ranks; limit it with -np");
}

Status check_ranks_of_host(const std::string& host, std::int64_t ranks) {
  if (ranks <= kMaxSlotsPerHost) return Ok{};
  return make_error(ErrorCode::kUsage,
                    std::to_string(ranks) + " ranks are too many for one host (" + host +
                        "): it runs at most " + std::to_string(kMaxSlotsPerHost) +
                        "; ask for fewer ranks (-np), or name more hosts, such as -H a:64,b:64");
}

// Programs own consecutive ranks, as in mpirun and Hydra: the order on the command line is the
// order of the ranks, wherever the hosts put them.

// A walk over the programs, of which jobs have a few; ranks they may have a million.
std::size_t program_of_rank(const std::vector<Program>& programs, int rank) {
  std::size_t index = 0;
  for (int end = programs.front().ranks; index + 1 < programs.size() && rank >= end;) {
    end += programs[++index].ranks;
  }
  return index;
}

std::string programs_text(const std::vector<std::vector<std::string>>& commands) {
  std::string text;
  for (const auto& command : commands) {
    if (!text.empty()) text += " : ";
    text += quote_shell_words(command);
  }
  return text;
}

std::vector<std::vector<std::string>> commands_of(const JobSpec& spec) {
  if (spec.programs.empty()) return {spec.command};
  std::vector<std::vector<std::string>> commands;
  for (const Program& program : spec.programs) commands.push_back(program.command);
  return commands;
}

// Assigns ranks to hosts: host after host in the order given, each filled before the next one.

namespace {

// "a:2, b:2 and 14 more"
std::string slots_by_host(const std::vector<Host>& hosts) {
  std::vector<std::string> out;
  for (const Host& host : hosts) out.push_back(format_host(host));
  return few_names(out);
}

// The same hosts with slots for all ranks, the same number on each where possible: "a:4,b:4". The
// slots of many hosts would be too long to type: the first few stand for all.
std::string enough_slots(const std::vector<Host>& hosts, int num_proc) {
  constexpr std::size_t kShown = 4;
  // Rounded up: the slots that are too many do no harm.
  const auto count = static_cast<int>(hosts.size());
  const int each = num_proc / count + (num_proc % count == 0 ? 0 : 1);
  std::vector<std::string> out;
  for (const Host& host : hosts) {
    if (out.size() == kShown) return join(out, ",") + ",...";
    out.push_back(format_host(host, std::max(each, host.slots.value_or(0))));
  }
  return join(out, ",");
}

// The message computes what would help, since this is the error that beginners meet first.
Error too_few_slots(const std::vector<Host>& hosts, std::int64_t available, int num_proc) {
  std::string message = "-np " + std::to_string(num_proc) + " asks for " +
                        counted(num_proc, "rank") + ", but the hosts offer " +
                        counted(available, "slot") + " (" + slots_by_host(hosts) + "). ";
  message +=
      (hosts.size() == 1 ? "Give the host more slots (-H " : "Give the hosts more slots (-H ") +
      enough_slots(hosts, num_proc) +
      "), add hosts, use --slots-per-host N, or ask for fewer ranks.";
  return make_error(ErrorCode::kUsage, std::move(message));
}

// cross_rank is the place among the hosts that have a slot with this local rank; cross_size is the
// number of those hosts. Hosts may differ in slots, so both depend on the local rank.
void fill_cross_ranks(Plan& plan) {
  std::vector<int> sharing;  // by local rank
  for (HostPlan& host : plan.hosts) {
    if (sharing.size() < host.slots.size()) sharing.resize(host.slots.size(), 0);
    for (Slot& slot : host.slots) {
      slot.cross_rank = sharing[static_cast<std::size_t>(slot.local_rank)]++;
    }
  }
  for (HostPlan& host : plan.hosts) {
    for (Slot& slot : host.slots) {
      slot.cross_size = sharing[static_cast<std::size_t>(slot.local_rank)];
    }
  }
}

// How many ranks each host gets. The caller has checked that there are slots for all of them, so
// each round of the outer loop places at least one.
std::vector<int> share_ranks(const std::vector<Host>& hosts, int wanted, MapBy map_by) {
  std::vector<int> shares(hosts.size(), 0);
  // In turn, one rank at a time; else each host is filled in its turn.
  const int at_once = map_by == MapBy::kNode ? 1 : wanted;
  for (int left = wanted; left > 0;) {
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      const int more = std::min({hosts[i].slots.value_or(0) - shares[i], left, at_once});
      shares[i] += more;
      left -= more;
    }
  }
  return shares;
}

// Numbers the ranks. Local ranks keep the order of the ranks either way.
void number_ranks(Plan& plan, MapBy map_by) {
  if (map_by == MapBy::kSlot) {
    for (HostPlan& host : plan.hosts) {
      for (Slot& slot : host.slots) slot.rank = plan.world_size++;
    }
    return;
  }
  bool is_dealt = false;
  for (std::size_t local_rank = 0; !is_dealt; ++local_rank) {
    is_dealt = true;
    for (HostPlan& host : plan.hosts) {
      if (local_rank >= host.slots.size()) continue;
      host.slots[local_rank].rank = plan.world_size++;
      is_dealt = false;
    }
  }
}

}  // namespace

Result<Plan> plan_job(const std::vector<Host>& hosts, int num_proc, MapBy map_by) {
  for (const Host& host : hosts) {
    if (host.slots) continue;
    return make_error(ErrorCode::kUsage, "the slots of host " + host.name +
                                             " are known only after horarun has connected to it "
                                             "(--slots-per-host auto)");
  }
  const std::int64_t available = count_slots(hosts);
  if (hosts.empty() || available == 0) {
    return make_error(ErrorCode::kUsage, hosts.empty()
                                             ? "no hosts to run on"
                                             : "no host has a slot (" + slots_by_host(hosts) +
                                                   "); expected at least one such as node1:4");
  }
  if (available < num_proc) return too_few_slots(hosts, available, num_proc);
  const std::int64_t wanted = num_proc > 0 ? num_proc : available;
  HORA_TRY(check_rank_count(wanted));

  Plan plan;
  const std::vector<int> shares = share_ranks(hosts, static_cast<int>(wanted), map_by);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    // Hosts beyond the wanted number take no part and are not contacted.
    if (shares[i] == 0) continue;
    HORA_TRY(check_ranks_of_host(hosts[i].name, shares[i]));
    HostPlan part;
    part.host = hosts[i];
    part.index = static_cast<int>(plan.hosts.size());
    for (int local_rank = 0; local_rank < shares[i]; ++local_rank) {
      part.slots.push_back(Slot{0, local_rank, 0, 1});
    }
    plan.hosts.push_back(std::move(part));
  }
  number_ranks(plan, map_by);
  fill_cross_ranks(plan);
  return plan;
}

Result<Plan> plan_job(const JobSpec& spec, const std::vector<Host>& hosts) {
  if (spec.seats.empty()) return plan_job(hosts, spec.num_proc, spec.map_by);
  // Ranks come in order, and so do the hosts that they introduce: no host is listed without a rank.
  Plan plan;
  std::map<std::size_t, std::size_t> places;  // of hosts[i] in the plan
  for (const RankSeat& seat : spec.seats) {
    const auto [place, is_new] = places.try_emplace(seat.host, plan.hosts.size());
    if (is_new) {
      HostPlan& host = plan.hosts.emplace_back();
      host.host = hosts.at(seat.host);
      host.index = static_cast<int>(place->second);
    }
    auto& slots = plan.hosts[place->second].slots;
    slots.push_back({plan.world_size++, static_cast<int>(slots.size()), 0, 1, seat.cores});
  }
  fill_cross_ranks(plan);
  return plan;
}

Status check_shown_ranks(const JobSpec& spec, const Plan& plan) {
  const bool may_shrink = spec.elastic || (spec.restart && spec.restart->attempt > 0);
  if (!spec.shown_ranks || may_shrink) return Ok{};
  const int largest = spec.shown_ranks->largest();
  if (largest < plan.world_size) return Ok{};
  return make_error(ErrorCode::kUsage, "--show-ranks: there is no rank " + std::to_string(largest) +
                                           "; the job has the ranks 0 to " +
                                           std::to_string(plan.world_size - 1));
}

std::string planned_host_name(const std::vector<HostPlan>& hosts, int index) {
  if (index < 0 || index >= static_cast<int>(hosts.size())) return "an unknown host";
  return hosts[static_cast<std::size_t>(index)].host.name;
}

// -np without hosts means this machine.
std::vector<Host> settle_named_slots(const JobSpec& spec) {
  if (spec.hosts.empty()) return {Host{"localhost", "", spec.num_proc}};
  std::vector<Host> hosts = spec.hosts;
  for (Host& host : hosts) {
    if (!host.slots && !spec.slots_per_host_auto) host.slots = spec.slots_per_host.value_or(1);
  }
  return hosts;
}

bool has_open_slots(const std::vector<Host>& hosts) {
  return std::any_of(hosts.begin(), hosts.end(), [](const Host& host) { return !host.slots; });
}

int slots_for_gpus(int gpus, std::string_view gpus_per_rank) {
  const int each = std::max(1, parse_int<int>(gpus_per_rank).value_or(1));
  return std::clamp(gpus / each, 1, kMaxSlotsPerHost);
}

Result<std::vector<Host>> settle_gpu_slots(std::vector<Host> hosts, const std::vector<int>& gpus,
                                           std::string_view gpus_per_rank) {
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (hosts[i].slots) continue;
    const int count = i < gpus.size() ? gpus[i] : 0;
    if (count <= 0) {
      return make_error(ErrorCode::kUsage, "--slots-per-host auto: host " + hosts[i].name +
                                               " has no GPUs; give its slots, such as " +
                                               format_host(hosts[i], 4));
    }
    hosts[i].slots = slots_for_gpus(count, gpus_per_rank);
  }
  return hosts;
}

// A rank without a line, or with two, is an error: what Open MPI makes of it depends on its
// release.

namespace {

constexpr std::string_view kRankfileForm = "expected 'rank N=HOST slot=CORES'";

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
    if (word() != "rank") return wrong(kRankfileForm);
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
    // The cores stay text: their meaning depends on the host. Mistakes in them are reported here,
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
  for (const std::string_view each : split(without_mark(text), '\n')) {
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
  if (out.empty()) return usage(std::string(path) + ": no ranks; " + std::string(kRankfileForm));
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
