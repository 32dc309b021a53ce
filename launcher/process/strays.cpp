#include "launcher/process/strays.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "launcher/process/job_cgroup.h"

namespace hora::launcher {

namespace {

// Until a child ends, or 10 ms have passed: what is no child of ours ends without telling us.
void wait_for_a_child() {
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  const timespec ten_ms{0, 10'000'000};
  ::sigtimedwait(&child, nullptr, &ten_ms);
}

}  // namespace

std::vector<ProcessEntry> find_strays(const StrayScope& scope) {
  const std::vector<ProcessEntry> all = list_processes();
  std::vector<ProcessEntry> found = descendants_of(scope.root.pid, all);
  std::set<pid_t> known{scope.root.pid};
  for (const ProcessEntry& entry : found) known.insert(entry.pid);
  if (!scope.mark.empty()) {
    for (const ProcessEntry& entry : all) {
      // Nothing of the job is older than its agent.
      if (entry.started_ticks < scope.root.started_ticks || known.count(entry.pid) > 0) continue;
      if (environment_has(entry.pid, scope.mark)) found.push_back(entry);
    }
  }
  const auto not_ours = [&scope](const ProcessEntry& entry) {
    return entry.is_zombie() ||
           std::find(scope.spare.begin(), scope.spare.end(), entry.pid) != scope.spare.end();
  };
  found.erase(std::remove_if(found.begin(), found.end(), not_ours), found.end());
  return found;
}

bool reap_all_children() {
  while (true) {
    const pid_t pid = ::waitpid(-1, nullptr, WNOHANG);
    if (pid > 0 || (pid < 0 && errno == EINTR)) continue;
    return pid < 0 && errno == ECHILD;
  }
}

std::vector<ProcessEntry> kill_strays(const StrayScope& scope, const char* cgroup_path,
                                      std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (true) {
    if (cgroup_path[0] != '\0') kill_cgroup(cgroup_path);
    const bool childless = reap_all_children();
    std::vector<ProcessEntry> strays = find_strays(scope);
    if (strays.empty() && childless) return {};
    if (std::chrono::steady_clock::now() >= deadline) return strays;
    // Stopped first, so that none forks while the others are being killed.
    for (const ProcessEntry& stray : strays) signal_process(stray, SIGSTOP);
    for (const ProcessEntry& stray : strays) signal_process(stray, SIGKILL);
    wait_for_a_child();
  }
}

}  // namespace hora::launcher
