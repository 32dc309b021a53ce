// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/strays.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "launcher/process/job_cgroup.h"
#include "rendezvous/base/time.h"

namespace hora::launcher {

namespace {

constexpr Milliseconds kChaseAtOnce{50};  // then a look at the whole machine, for the mark

// Until a child ends, or 10 ms have passed: processes that are not children of ours end without
// notice.
void wait_for_a_child() {
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  const timespec ten_ms{0, 10'000'000};
  ::sigtimedwait(&child, nullptr, &ten_ms);
}

bool is_spared(const StrayScope& scope, pid_t pid) {
  return std::find(scope.spare.begin(), scope.spare.end(), pid) != scope.spare.end();
}

// For a process that may have gone since `of` was read, so that its number is another's.
std::vector<pid_t> children_of(const ProcessEntry& of) {
  auto children = list_children(of.pid);
  if (!children) {
    children.emplace();
    for (const ProcessEntry& entry : list_processes().value_or(std::vector<ProcessEntry>())) {
      if (entry.parent == of.pid) children->push_back(entry.pid);
    }
  }
  if (children->empty()) return {};
  const auto now = read_process(of.pid);
  if (!now || now->started_ticks != of.started_ticks) return {};
  return *std::move(children);
}

// Calls `visit` for every descendant that lives, the youngest generation as soon as can be.
template <typename Visit>
void visit_descendants(const StrayScope& scope, const Visit& visit) {
  std::vector<ProcessEntry> open{scope.root};
  std::set<pid_t> seen{scope.root.pid};
  while (!open.empty()) {
    const ProcessEntry parent = open.back();
    open.pop_back();
    for (const pid_t pid : children_of(parent)) {
      const auto child = read_process(pid);
      if (!child || child->parent != parent.pid || !seen.insert(pid).second) continue;
      const bool spared = is_spared(scope, pid);
      if (!child->is_zombie()) {
        if (!spared) visit(*child);
        open.push_back(*child);
      } else if (parent.pid == scope.root.pid && !spared) {
        ::waitpid(pid, nullptr, WNOHANG);  // ended, and so it is reaped or not there any more
      }
    }
  }
}

}  // namespace

std::optional<std::vector<ProcessEntry>> find_strays(const StrayScope& scope) {
  // Nothing of the job is older than its agent.
  const auto all = list_processes_since(scope.root);
  if (!all) return std::nullopt;
  std::vector<ProcessEntry> found = descendants_of(scope.root.pid, *all);
  std::set<pid_t> known{scope.root.pid};
  for (const ProcessEntry& entry : found) known.insert(entry.pid);
  if (!scope.mark.empty()) {
    for (const ProcessEntry& entry : *all) {
      if (entry.started_ticks < scope.root.started_ticks || known.count(entry.pid) > 0) continue;
      if (environment_has(entry.pid, scope.mark)) found.push_back(entry);
    }
  }
  std::erase_if(found, [&scope](const ProcessEntry& entry) {
    return entry.is_zombie() || is_spared(scope, entry.pid);
  });
  return found;
}

bool reap_all_children() {
  while (true) {
    const pid_t pid = ::waitpid(-1, nullptr, WNOHANG);
    if (pid > 0 || (pid < 0 && errno == EINTR)) continue;
    return pid < 0 && errno == ECHILD;
  }
}

Chase chase_descendants(const StrayScope& scope, Milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  Chase chase;
  std::set<std::pair<pid_t, std::uint64_t>> known;
  do {
    const std::size_t before = chase.killed.size();
    visit_descendants(scope, [&](const ProcessEntry& entry) {
      if (!signal_process(entry, SIGKILL)) return;
      if (known.emplace(entry.pid, entry.started_ticks).second) chase.killed.push_back(entry);
    });
    chase.caught_up = chase.killed.size() == before;
  } while (!chase.caught_up && Clock::now() < deadline);
  return chase;
}

StraysLeft kill_strays(const StrayScope& scope, const char* cgroup_path, Milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  while (true) {
    if (cgroup_path[0] != '\0') kill_cgroup(cgroup_path);
    const Chase chase = chase_descendants(scope, kChaseAtOnce);
    const bool childless = reap_all_children();
    const bool late = Clock::now() >= deadline;
    if (chase.caught_up || late) {  // the look at the whole machine is slow: not during a chase
      std::optional<std::vector<ProcessEntry>> strays = find_strays(scope);
      if (strays && strays->empty() && childless) return {};
      if (!strays) strays.emplace();  // unknown: try again until the time is up
      if (late) return {false, *std::move(strays)};
      // Stopped first, so that none forks while the others are being killed.
      for (const ProcessEntry& stray : *strays) signal_process(stray, SIGSTOP);
      for (const ProcessEntry& stray : *strays) signal_process(stray, SIGKILL);
      wait_for_a_child();
    }
  }
}

bool kill_marked(const std::string& mark, Milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  do {
    std::vector<ProcessEntry> found;
    const auto all = list_processes();
    for (const ProcessEntry& entry : all.value_or(std::vector<ProcessEntry>())) {
      if (!entry.is_zombie() && environment_has(entry.pid, mark)) found.push_back(entry);
    }
    if (all && found.empty()) return true;
    // Stopped first, so that none forks while the others are being killed.
    for (const ProcessEntry& entry : found) signal_process(entry, SIGSTOP);
    for (const ProcessEntry& entry : found) signal_process(entry, SIGKILL);
    wait_for_a_child();
  } while (Clock::now() < deadline);
  return false;
}

}  // namespace hora::launcher
