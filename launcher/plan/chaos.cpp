#include "launcher/plan/chaos.h"

#include <signal.h>

#include <algorithm>

#include "launcher/plan/plan.h"
#include "launcher/text/duration.h"
#include "launcher/text/spec_location.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

using std::chrono::milliseconds;

constexpr std::string_view kExample = "such as kill:3@10s or stop:5@20s+3s";

// Both change the network of hosts, for which nobody asks but their administrators.
constexpr std::string_view kCut =
    "cut needs the right to filter packets on the hosts (root, nftables), which horarun does not "
    "ask for; stop:HOST@TIME+DURATION makes all ranks of a host silent for a while";
constexpr std::string_view kSlow =
    "slow needs the right to delay packets on the host (root), which horarun does not ask for; "
    "as root there: tc qdisc add dev INTERFACE root netem delay 50ms";

Error wrong(std::string_view text, std::size_t offset, std::string_view message) {
  return spec_error({"--chaos", text, 0}, offset, message);
}

bool is_rank(std::string_view target) {
  return std::all_of(target.begin(), target.end(), [](char c) { return c >= '0' && c <= '9'; });
}

Result<milliseconds> parse_time(std::string_view text, std::size_t begin, std::size_t end) {
  const std::string_view word = text.substr(begin, end - begin);
  const auto time = parse_duration(word);
  if (time) return *time;
  return wrong(text, begin, "expected " + std::string(kDurationGrammar) + ", found " + quote(word));
}

// The item between `begin` and `end`.
Result<ChaosAct> parse_act(std::string_view text, std::size_t begin, std::size_t end) {
  const std::string_view item = text.substr(begin, end - begin);
  const std::string_view verb = item.substr(0, item.find(':'));
  ChaosAct act;
  if (verb == "cut") return wrong(text, begin, kCut);
  if (verb == "slow") return wrong(text, begin, kSlow);
  if (verb == "kill") act.signal = SIGKILL;
  if (verb == "term") act.signal = SIGTERM;
  if (verb == "stop") act.signal = SIGSTOP;
  if (act.signal == 0) {
    return wrong(
        text, begin,
        "expected kill, term or stop, " + std::string(kExample) + ", found " + quote(verb));
  }
  if (verb.size() == item.size()) {
    return wrong(text, end, "expected ':' and a rank or a host, " + std::string(kExample));
  }
  act.offset = begin + verb.size() + 1;
  const std::size_t at = text.find('@', act.offset);
  const std::size_t target_end = std::min(at, end);
  act.target = text.substr(act.offset, target_end - act.offset);
  if (act.target.empty()) {
    return wrong(text, act.offset, "expected a rank or a host, " + std::string(kExample));
  }
  if (at >= end) {
    return wrong(text, end, "expected '@' and a time, " + std::string(kExample));
  }
  const std::size_t plus = std::min(text.find('+', at), end);
  const auto time = parse_time(text, at + 1, plus);
  if (!time) return time.error();
  act.at = *time;
  if (plus == end) return act;
  if (act.signal != SIGSTOP) {
    return wrong(text, plus, "only stop has a duration; " + std::string(verb) + " is for good");
  }
  const auto duration = parse_time(text, plus + 1, end);
  if (!duration) return duration.error();
  act.duration = *duration;
  return act;
}

struct Place {
  int host;
  int rank;
};

std::string without_brackets(const std::string& name) {
  const bool has = name.size() > 2 && name.front() == '[' && name.back() == ']';
  return has ? name.substr(1, name.size() - 2) : name;
}

std::vector<Place> places_of(const ChaosAct& act, const Plan& plan) {
  std::vector<Place> out;
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

std::string nowhere(const ChaosAct& act, const Plan& plan) {
  if (!is_rank(act.target)) {
    std::vector<std::string> names;
    for (const HostPlan& host : plan.hosts) names.push_back(host.host.name);
    constexpr std::size_t kShown = 8;
    const bool more = names.size() > kShown;
    if (more) names.resize(kShown);
    return "no rank of the job runs on a host " + quote(act.target) + "; they run on " +
           join(names, ", ") + (more ? ", ..." : "");
  }
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
    for (const Place& place : places) {
      steps.push_back({act.at, place.host, place.rank, act.signal});
      if (act.duration) {
        steps.push_back({act.at + *act.duration, place.host, place.rank, SIGCONT});
      }
    }
  }
  std::stable_sort(steps.begin(), steps.end(),
                   [](const ChaosStep& a, const ChaosStep& b) { return a.at < b.at; });
  return steps;
}

}  // namespace hora::launcher
