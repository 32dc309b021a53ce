// SPDX-License-Identifier: Apache-2.0
// An attempt is compared with others by what a person would call the same error, not by which rank
// came first or which port was in use. Of hosts, the policy believes the worst: one that failed
// once is left out for good, for a training that is started on it again loses more than a slot.
#include "launcher/job/restart_policy.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "launcher/failures/failure_code.h"
#include "launcher/protocol/exit_code.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// Codes by which programs say that they were called wrongly: that of argparse and of Python for a
// script that it cannot open, EX_USAGE of sysexits.h, a program that cannot be started.
constexpr int kUsageCodes[] = {2, 64, 126, 127};

bool says_usage(const RankExit& exit) {
  return exit.signal == 0 && std::find(std::begin(kUsageCodes), std::end(kUsageCodes),
                                       exit.exit_code) != std::end(kUsageCodes);
}

std::string exit_text(const RankExit& exit) {
  return exit.signal != 0 ? "signal " + std::to_string(exit.signal)
                          : "exit code " + std::to_string(exit.exit_code);
}

// The last line that is not blank: of Python's tracebacks, the error. Numbers are left out, for
// ports, addresses and times differ from attempt to attempt.
std::string last_line(std::string_view text) {
  std::string out;
  for (const std::string_view line : split(text, '\n')) {
    if (!trim(line).empty()) out = trim(line);
  }
  out.erase(std::remove_if(out.begin(), out.end(), [](char c) { return c >= '0' && c <= '9'; }),
            out.end());
  return out;
}

RestartPolicy::Attempt describe(const JobOutcome& outcome, const std::vector<HostPlan>& hosts,
                                Milliseconds ran) {
  const Cause& cause = *outcome.cause;
  RestartPolicy::Attempt attempt;
  attempt.exit_code = outcome.exit_code();
  attempt.ran = ran;
  switch (cause.kind) {
    case Cause::Kind::kRank:
      attempt.cause = "rank " + std::to_string(cause.exit.rank) + " on " +
                      planned_host_name(hosts, cause.host) + ": " + exit_text(cause.exit);
      // Not the rank: of several that fail alike, any may be the first.
      attempt.error = exit_text(cause.exit) + ": " + last_line(cause.exit.last_stderr);
      break;
    case Cause::Kind::kHost:
      attempt.cause = "host " + planned_host_name(hosts, cause.host) + ": " + cause.failure.code;
      attempt.error = attempt.cause;
      break;
    default:
      attempt.cause = attempt.error = cause.failure.code;
  }
  return attempt;
}

// Others end a job for good: the user, the reader of its output, --timeout, horarun's own failures.
bool may_go_better(const Cause& cause) {
  switch (cause.kind) {
    case Cause::Kind::kRank:
    case Cause::Kind::kHost:
      return true;
    case Cause::Kind::kTimeout:
      return cause.failure.code == failure::kStartTimeout;
    case Cause::Kind::kLaunch:
      return cause.failure.code == failure::kStalled;
    default:
      return false;
  }
}

// Many hosts with many slots exceed an int.
std::int64_t slots_of(const std::vector<Host>& hosts, const JobSpec& spec) {
  const int otherwise = spec.slots_per_host.value_or(1);
  std::int64_t sum = 0;
  for (const Host& host : hosts) sum += host.slots.value_or(otherwise);
  return sum;
}

}  // namespace

RestartPolicy::Decision RestartPolicy::decide(const JobOutcome& outcome,
                                              const std::vector<HostPlan>& hosts, const End& end) {
  if (!outcome.cause || end.interrupted || !may_go_better(*outcome.cause)) return {};
  failed_.push_back(describe(outcome, hosts, end.ran));
  const Cause& cause = *outcome.cause;
  if (cause.kind == Cause::Kind::kRank && says_usage(cause.exit)) {
    return {false, "not restarted: " + exit_text(cause.exit) + " means wrong usage"};
  }
  if (failed_.size() > static_cast<std::size_t>(most_)) {
    return {false, "not restarted again: all attempts are used up (--restarts " +
                       std::to_string(most_) + ")"};
  }
  const std::size_t alike = static_cast<std::size_t>(
      std::find_if(failed_.rbegin(), failed_.rend(),
                   [this](const Attempt& attempt) {
                     return attempt.error != failed_.back().error || attempt.ran >= kAtOnce;
                   }) -
      failed_.rbegin());
  if (alike >= kSameErrors) {
    return {false,
            "not restarted again: the same error came at once " + std::to_string(alike) + " times"};
  }
  return {true, ""};
}

std::string RestartPolicy::count_text() const {
  return "restart " + std::to_string(failed_.size()) + " of " + std::to_string(most_);
}

JobSpec restarted(JobSpec spec, const JobOutcome& outcome, const std::vector<HostPlan>& hosts) {
  ++spec.restart->attempt;
  // Faults are injected once: into the attempt that is to recover from them.
  spec.chaos.reset();
  std::set<std::string> failed;
  if (outcome.cause && outcome.cause->kind == Cause::Kind::kHost) {
    failed.insert(planned_host_name(hosts, outcome.cause->host));
    for (const Cause& each : outcome.unreached) failed.insert(planned_host_name(hosts, each.host));
  }
  for (const int host : outcome.unconfirmed_hosts) failed.insert(planned_host_name(hosts, host));
  std::vector<Host> left;
  for (const Host& host : spec.hosts) {
    if (failed.count(host.name) == 0) left.push_back(host);
  }
  const std::int64_t remaining = slots_of(left, spec);
  // Several programs share out exactly their ranks: with fewer slots, all hosts are tried again.
  if (!spec.programs.empty() && remaining < spec.num_proc) return spec;
  // A rankfile says where each rank runs, and nothing of other hosts.
  if (!spec.seats.empty()) return spec;
  if (remaining > 0) spec.hosts = std::move(left);
  // The slots of --slots-per-host auto are known only when the hosts are connected.
  if (spec.num_proc == 0 || spec.hosts.empty() || spec.slots_per_host_auto) return spec;
  spec.num_proc =
      static_cast<int>(std::min<std::int64_t>(spec.num_proc, slots_of(spec.hosts, spec)));
  return spec;
}

std::string restart_changes(const JobSpec& before, const JobSpec& after) {
  std::vector<std::string> parts;
  for (const Host& host : before.hosts) {
    const bool stays = std::any_of(after.hosts.begin(), after.hosts.end(),
                                   [&host](const Host& other) { return other.name == host.name; });
    if (!stays) parts.push_back("without host " + host.name);
  }
  if (after.num_proc != before.num_proc) {
    parts.push_back("with " + counted(after.num_proc, "rank") + " instead of " +
                    std::to_string(before.num_proc));
  }
  return join(parts, ", ");
}

}  // namespace hora::launcher
