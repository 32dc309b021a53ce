// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/stray_hunt.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "rendezvous/base/time.h"
#include "rendezvous/os/limits.h"

namespace hora::launcher {

namespace {

constexpr Milliseconds kChaseAtOnce{20};  // then the loop has its turn

}  // namespace

StrayHunt::StrayHunt(std::string mark) {
  scope_.root = read_process(::getpid()).value_or(ProcessEntry{});
  scope_.root.pid = ::getpid();
  scope_.mark = std::move(mark);
}

std::vector<ProcessEntry> StrayHunt::find(const SparedProcesses& spared) const {
  auto listed = find_strays(scope_);
  // The shim has descriptors and memory of its own. It ends the job when this process ends so.
  if (!listed) os::exit_without_resources("the list of processes cannot be read");
  std::vector<ProcessEntry> found = *std::move(listed);
  std::erase_if(found, [&spared](const ProcessEntry& each) {
    return each.pid == spared.server ||
           std::find(spared.ranks.begin(), spared.ranks.end(), each.pid) != spared.ranks.end();
  });
  return found;
}

// Nothing where the kernel does not list them.
std::optional<std::vector<pid_t>> StrayHunt::children_but_ranks(
    const SparedProcesses& spared) const {
  auto children = list_children(scope_.root.pid);
  if (!children) return std::nullopt;
  for (const pid_t rank : spared.ranks) std::erase(*children, rank);
  return children;
}

// find() reads process by process and may miss one that forks and ends meanwhile. But all strays
// descend from this process, so where it has no child there is none.
bool StrayHunt::is_clean(const std::vector<ProcessEntry>& seen,
                         const SparedProcesses& spared) const {
  if (!seen.empty()) return false;
  siginfo_t info{};
  if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD) return true;
  if (spared.ranks.empty()) return false;
  const auto others = children_but_ranks(spared);
  return !others || others->empty();
}

void StrayHunt::terminate(const std::vector<ProcessEntry>& seen,
                          const std::set<pid_t>& termed_groups) {
  remember_killed(seen);
  for (const ProcessEntry& stray : seen) {
    if (termed_groups.count(stray.group) > 0) continue;
    signal_process(stray, SIGTERM);
    signal_process(stray, SIGCONT);  // a stopped one could not react
  }
}

void StrayHunt::kill(const SparedProcesses& spared, JobCgroup* cgroup) {
  std::vector<ProcessEntry> left;
  if (!looked_ || caught_up_) left = find(spared);
  looked_ = true;
  remember_killed(left);
  if (cgroup != nullptr) cgroup->kill();
  // Stopped first, so that none forks while the others are being killed.
  for (const ProcessEntry& stray : left) signal_process(stray, SIGSTOP);
  for (const ProcessEntry& stray : left) signal_process(stray, SIGKILL);
  StrayScope scope = scope_;
  scope.spare = spared.ranks;
  if (spared.server > 0) scope.spare.push_back(spared.server);
  const Chase chase = chase_descendants(scope, kChaseAtOnce);
  remember_killed(chase.killed);
  caught_up_ = chase.caught_up;
}

// Processes that fork and end all the time may not be in `seen`, though some exist at any moment.
void StrayHunt::give_up(const std::vector<ProcessEntry>& seen, const SparedProcesses& spared) {
  for (const ProcessEntry& stray : seen) survivors_.push_back(stray.pid);
  if (!seen.empty()) return;
  for (const pid_t child : children_but_ranks(spared).value_or(std::vector<pid_t>())) {
    survivors_.push_back(child);
  }
  uncounted_ = survivors_.empty();
}

Goodbye StrayHunt::account(const std::vector<pid_t>& living_ranks) const {
  Goodbye goodbye;
  goodbye.survivor_pids = survivors_;
  goodbye.survivor_pids.insert(goodbye.survivor_pids.end(), living_ranks.begin(),
                               living_ranks.end());
  goodbye.survivors = static_cast<int>(goodbye.survivor_pids.size()) + (uncounted_ ? 1 : 0);
  goodbye.forking = goodbye.survivors > 0 && !caught_up_;
  goodbye.killed = static_cast<int>(killed_.size());
  return goodbye;
}

void StrayHunt::remember_killed(const std::vector<ProcessEntry>& strays) {
  for (const ProcessEntry& stray : strays) killed_.emplace(stray.pid, stray.started_ticks);
}

}  // namespace hora::launcher
