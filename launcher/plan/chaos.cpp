// SPDX-License-Identifier: Apache-2.0
// The grammar is VERB:TARGET@TIME[+DURATION], in a list with commas. Offsets are kept, so that
// errors found later, against the plan, still point at the text.
#include "launcher/plan/chaos.h"

#include <signal.h>

#include <algorithm>

#include "launcher/plan/plan.h"
#include "launcher/text/units.h"
#include "launcher/text/user_input.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/time.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kExample = "such as kill:3@10s or stop:5@20s+3s";

// Linux has no network delay that ends with the process that asked for it, so "slow" could leave a
// host damaged.
constexpr std::string_view kSlow =
    "slow is not supported: a kernel delay (tc) would stay on the host if this job were killed; as "
    "root on the host, run: tc qdisc add dev INTERFACE root netem delay 50ms";

Error wrong(std::string_view text, std::size_t offset, std::string_view message) {
  return spec_error({"--chaos", text, 0}, offset, message);
}

// All digits mean a rank; a host whose name is a number cannot be named here.
bool is_rank(std::string_view target) {
  return std::all_of(target.begin(), target.end(), [](char c) { return c >= '0' && c <= '9'; });
}

Result<Milliseconds> parse_time(std::string_view text, std::size_t begin, std::size_t end) {
  const std::string_view word = text.substr(begin, end - begin);
  const auto time = parse_duration(word);
  if (time) return *time;
  return wrong(text, begin, "expected " + std::string(kDurationGrammar) + ", found " + quote(word));
}

// Parses "@TIME[+DURATION]", which begins at `at` or is missing.
Status parse_times(std::string_view text, std::size_t at, std::size_t end, ChaosAct& act) {
  if (at >= end) return wrong(text, end, "expected '@' and a time, " + std::string(kExample));
  const std::size_t plus = std::min(text.find('+', at), end);
  const auto time = parse_time(text, at + 1, plus);
  if (!time) return time.error();
  act.at = *time;
  if (plus == end) return Ok{};
  if (act.signal != SIGSTOP) return wrong(text, plus, "only stop has a duration");
  const auto duration = parse_time(text, plus + 1, end);
  if (!duration) return duration.error();
  act.duration = *duration;
  return Ok{};
}

// Parses the item between `begin` and `end`.
Result<ChaosAct> parse_act(std::string_view text, std::size_t begin, std::size_t end) {
  const std::string_view item = text.substr(begin, end - begin);
  const std::string_view verb = item.substr(0, item.find(':'));
  ChaosAct act;
  if (verb == "slow") return wrong(text, begin, kSlow);
  if (verb == "kill") act.signal = SIGKILL;
  if (verb == "term") act.signal = SIGTERM;
  if (verb == "stop") act.signal = SIGSTOP;
  if (act.signal == 0) {
    return wrong(
        text, begin,
        "expected kill, term or stop, " + std::string(kExample) + ", found " + quote(verb));
  }
  // There is no ':'.
  if (verb.size() == item.size()) {
    return wrong(text, end, "expected ':' and a rank or a host, " + std::string(kExample));
  }
  act.offset = begin + verb.size() + 1;
  const std::size_t at = text.find('@', act.offset);
  act.target = text.substr(act.offset, std::min(at, end) - act.offset);
  if (act.target.empty()) {
    return wrong(text, act.offset, "expected a rank or a host, " + std::string(kExample));
  }
  HORA_TRY(parse_times(text, at, end, act));
  return act;
}

struct Target {
  int host;
  int rank;
};

// The plan holds IPv6 names without brackets.
std::string without_brackets(const std::string& name) {
  const bool has = name.size() > 2 && name.front() == '[' && name.back() == ']';
  return has ? name.substr(1, name.size() - 2) : name;
}

// A host stands for all its ranks.
std::vector<Target> places_of(const ChaosAct& act, const Plan& plan) {
  std::vector<Target> out;
  const auto rank = is_rank(act.target) ? parse_int<int>(act.target) : std::nullopt;
  const std::string name = without_brackets(act.target);
  for (std::size_t host = 0; host < plan.hosts.size(); ++host) {
    for (const Slot& slot : plan.hosts[host].slots) {
      const bool hit = is_rank(act.target) ? slot.rank == rank : plan.hosts[host].host.name == name;
      if (hit) out.push_back({static_cast<int>(host), slot.rank});
    }
  }
  return out;
}

// Names a few hosts only; a job may have thousands.
std::string no_such_host(const std::string& name, const Plan& plan) {
  std::vector<std::string> names;
  for (const HostPlan& host : plan.hosts) names.push_back(host.host.name);
  constexpr std::size_t kShown = 8;
  const bool more = names.size() > kShown;
  if (more) names.resize(kShown);
  return "the job has no ranks on host " + quote(name) + "; its hosts are " + join(names, ", ") +
         (more ? ", ..." : "");
}

std::string nowhere(const ChaosAct& act, const Plan& plan) {
  if (!is_rank(act.target)) return no_such_host(act.target, plan);
  return "the job has no rank " + act.target + "; expected " +
         (plan.world_size == 1 ? "0" : "0 to " + std::to_string(plan.world_size - 1)) +
         ", or a host";
}

}  // namespace

Result<ChaosSpec> parse_chaos(std::string_view text) {
  ChaosSpec spec{std::string(text), {}};
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    auto act = parse_act(text, begin, end);
    if (!act) return std::move(act).error();
    spec.acts.push_back(std::move(*act));
    begin = end + 1;
  }
  return spec;
}

Result<std::vector<ChaosStep>> schedule_chaos(const ChaosSpec& spec, const Plan& plan) {
  std::vector<ChaosStep> steps;
  for (const ChaosAct& act : spec.acts) {
    const auto places = places_of(act, plan);
    if (places.empty()) return wrong(spec.text, act.offset, nowhere(act, plan));
    for (const Target& place : places) {
      steps.push_back({act.at, place.host, place.rank, act.signal});
      if (act.duration) {
        steps.push_back({act.at + *act.duration, place.host, place.rank, SIGCONT});
      }
    }
  }
  // Stable: steps with the same time keep the order of the text.
  std::stable_sort(steps.begin(), steps.end(),
                   [](const ChaosStep& a, const ChaosStep& b) { return a.at < b.at; });
  return steps;
}

}  // namespace hora::launcher
