// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/shim.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>

#include "launcher/process/job_cgroup.h"
#include "launcher/process/strays.h"
#include "launcher/protocol/exit_code.h"
#include "launcher/store/directories.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/time_until.h"

namespace hora::launcher {

namespace {

constexpr Milliseconds kSweepTimeout{3'000};  // then what is left is stuck in the kernel

void fill_mark(char (&mark)[80]) {
  constexpr std::string_view kName = "HORA_AGENT_MARK=";
  constexpr char kDigits[] = "0123456789abcdef";
  std::array<unsigned char, 16> random{};
  if (::getrandom(random.data(), random.size(), GRND_NONBLOCK) < 0) {
    // Early boot only. The mark must be unique, not secret.
    const auto now = Clock::now().time_since_epoch().count();
    const pid_t pid = ::getpid();
    std::memcpy(random.data(), &now, sizeof now);
    std::memcpy(random.data() + sizeof now, &pid, sizeof pid);
  }
  char* out = std::copy(kName.begin(), kName.end(), mark);
  for (unsigned char byte : random) {
    *out++ = kDigits[byte >> 4];
    *out++ = kDigits[byte & 15];
  }
  *out = '\0';
}

class Shim {
 public:
  Shim(pid_t agent, ShimState& share, os::Fd signals, std::unique_ptr<OneCpu> place)
      : agent_(agent), share_(share), signals_(std::move(signals)), place_(std::move(place)) {
    if (place_) leave_at_ = Clock::now() + OneCpu::kWhile;
  }

  int watch_agent() {
    while (!agent_ended()) {
      std::array<pollfd, 2> watched{{{signals_.get(), POLLIN, 0},
                                     // A negative fd is skipped: the stream's end is reported once.
                                     {give_up_ ? -1 : STDIN_FILENO, POLLRDHUP, 0}}};
      const int ready = ::poll(watched.data(), watched.size(), timeout_ms());
      if (ready < 0 && errno != EINTR) break;
      if (place_ && Clock::now() >= leave_at_) place_.reset();
      if (watched[0].revents != 0) forward_signals();
      if (watched[1].revents != 0) {
        give_up_ = Clock::now() + Milliseconds(share_.timeout_ms);
        ::kill(agent_, SIGCONT);  // it may be stopped, and could not see that the launcher is gone
      }
      // The launcher is gone and the agent, which must have seen it, does nothing: it is stopped
      // or stuck.
      if (give_up_ && Clock::now() >= *give_up_) ::kill(agent_, SIGKILL);
    }
    if (share_.finished == 1) {
      if (place_) place_->stay_to_the_end();
      remove_announced();
      return WIFEXITED(agent_status_) ? WEXITSTATUS(agent_status_) : 0;
    }
    clean_up();
    return kExitFailed;  // the agent was killed
  }

 private:
  bool agent_ended() {
    const pid_t pid = ::waitpid(agent_, &agent_status_, WNOHANG);
    return pid == agent_ || (pid < 0 && errno == ECHILD);
  }

  int timeout_ms() const {
    if (!give_up_ && !place_) return -1;
    Clock::time_point next = give_up_.value_or(Clock::time_point::max());
    if (place_) next = std::min(next, leave_at_);
    return std::max(os::milliseconds_until(next), 1);
  }

  void forward_signals() {
    signalfd_siginfo info;
    while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
      if (info.ssi_signo == SIGCHLD) continue;
      ::kill(agent_, static_cast<int>(info.ssi_signo));
      ::kill(agent_, SIGCONT);  // a stopped one could not react
    }
  }

  void clean_up() {
    StrayScope scope;
    scope.root = read_process(::getpid()).value_or(ProcessEntry{});
    scope.root.pid = ::getpid();
    scope.mark = share_.mark;
    report_strays(kill_strays(scope, share_.cgroup, kSweepTimeout));
    if (share_.cgroup[0] != '\0') remove_cgroup(share_.cgroup);
    remove_announced();
  }

  // The stream is the agent's: standard error is what is left.
  static void report_strays(const StraysLeft& left) {
    if (left.none) return;
    std::string pids;
    for (const ProcessEntry& process : left.seen) pids += " " + std::to_string(process.pid);
    std::fprintf(
        stderr, "hora-agent: the agent was killed; processes of the job are still running:%s\n",
        pids.empty() ? " they fork and exit faster than they can be killed" : pids.c_str());
  }

  // Files that the agent has made and not removed.
  void remove_announced() {
    if (share_.job_directory[0] != '\0') (void)remove_tree(share_.job_directory);
    for (const ShimState::BundleSlots* slots :
         {&share_.runtime, &share_.tree, &share_.environment}) {
      for (const auto& entry : slots->unfinished_entries) {
        if (entry[0] != '\0') (void)remove_tree(entry);
      }
      for (const auto& mark : slots->use_marks) {
        if (mark[0] != '\0') (void)remove_tree(mark);
      }
    }
  }

  pid_t agent_;
  int agent_status_ = 0;
  ShimState& share_;
  os::Fd signals_;
  std::optional<Clock::time_point> give_up_;
  std::unique_ptr<OneCpu> place_;  // until then; null: everywhere
  Clock::time_point leave_at_;
};

pid_t the_shim = 0;  // in the agent

int fail(const char* what) {
  std::fprintf(stderr, "hora-agent: %s: %s\n", what, std::strerror(errno));
  return kExitLauncher;
}

}  // namespace

void be_continued_by(int fd) {
  if (::fcntl(fd, F_SETOWN, ::getpid()) != 0 || ::fcntl(fd, F_SETSIG, SIGCONT) != 0) return;
  (void)::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_ASYNC);
}

bool set_shared_text(char (&text)[PATH_MAX], const std::string& value) {
  if (value.size() >= PATH_MAX) {
    text[0] = '\0';
    return false;
  }
  std::memcpy(text, value.c_str(), value.size() + 1);
  return true;
}

// The shim is our parent as long as it lives, and no other process has its number.
void take_shim_along(const OneCpu& place) {
  const pid_t shim = ::getppid();
  if (shim != the_shim) return;
  (void)set_cpu_mask(shim, place.everywhere());
}

int run_with_shim(std::unique_ptr<OneCpu> place, const AgentMain& agent_main) {
  void* page =
      ::mmap(nullptr, sizeof(ShimState), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return fail("mapping a page");
  // Not cleared: the kernel did that, and most of its pages are never touched.
  auto* share = new (page) ShimState;
  share->timeout_ms = 60'000;
  fill_mark(share->mark);

  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return fail("making a socketpair");
  }
  os::Fd shims_end(ends[0]);
  os::Fd agents_end(ends[1]);
  be_continued_by(shims_end.get());
  // Processes that the agent's ranks leave behind become children of the agent, and those that the
  // agent leaves, ours.
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) return fail("becoming a subreaper");

  const pid_t shim = ::getpid();
  const pid_t agent = ::fork();  // a process of a few hundred kilobytes
  if (agent < 0) return fail("forking the agent");
  if (agent == 0) {
    the_shim = shim;
    shims_end.reset();
    be_continued_by(agents_end.get());
    ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    return agent_main(*share, std::move(agents_end), std::move(place));
  }
  agents_end.reset();
  ::prctl(PR_SET_NAME, "hora-shim", 0, 0, 0);
  sigset_t watched;
  ::sigemptyset(&watched);
  for (int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    ::sigaddset(&watched, signal);
  }
  os::Fd signals(::signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.valid()) {
    ::kill(agent, SIGKILL);
    return fail("watching signals");
  }
  return Shim(agent, *share, std::move(signals), std::move(place)).watch_agent();
}

}  // namespace hora::launcher
