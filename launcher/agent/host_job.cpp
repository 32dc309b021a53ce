// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/host_job.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launcher/machine/host_facts.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher {

namespace {

constexpr Milliseconds kOwnEndTimeout{250};      // for what ranks leave: it may be about to end
constexpr Milliseconds kLeavingTimeout{2'000};   // for a rank that ends by itself
constexpr Milliseconds kStrayGraceLimit{2'000};  // between TERM and KILL for such
constexpr Milliseconds kKillTimeout{2'000};      // between KILL and giving up
constexpr Milliseconds kKillAgain{20};
constexpr Milliseconds kLongestPoll{40};
// A job of /bin/true need not wait for this: no rank has used up a machine's memory by then.
constexpr Milliseconds kWatchAfter{5};
constexpr Milliseconds kTidyAfter{500};  // unless the job is short and would have to wait for it

}  // namespace

HostJob::HostJob(os::EventLoop& loop, LauncherLink& link, PreparedJob prepared, std::string mark)
    : loop_(loop),
      link_(link),
      prepared_(std::move(prepared)),
      ranks_(loop, link, prepared_),
      strays_(std::move(mark)),
      progress_(loop, link, prepared_.flight_records()) {}

HostJob::~HostJob() {
  loop_.cancel(timer_);
  for (const auto timer : later_) loop_.cancel(timer);
  if (gpus_.fd() >= 0) loop_.unwatch(gpus_.fd());
}

Status HostJob::open(std::function<void(Goodbye)> on_finished) {
  on_finished_ = std::move(on_finished);
  for (os::Fd& fd : reserve_) {
    fd = os::Fd(::fcntl(prepared_.null_device(), F_DUPFD_CLOEXEC, 0));
    if (!fd.valid()) return errno_error(errno, "reserving a descriptor");
  }
  HORA_TRY(ranks_.open(static_cast<std::size_t>(order().output_window_bytes)));
  ranks_.output().set_on_progress([this] {
    ranks_.report_exits();
    if (phase_ == Phase::kDraining) drain();
  });
  if (prepared_.cgroup() != nullptr) {
    later_[0] = loop_.call_after(kTidyAfter, [this] {
      if (const JobCgroup* cgroup = prepared_.cgroup()) cgroup->remove_abandoned();
    });
  }
  return Ok{};
}

void HostJob::watch_gpus() {
  gpus_.begin();
  // Without it faults are reported when a rank has ended.
  if (gpus_.fd() >= 0) {
    (void)loop_.watch(gpus_.fd(), EPOLLIN, [this](std::uint32_t) {
      if (!report_gpu_faults()) loop_.unwatch(gpus_.fd());
    });
  }
}

Status HostJob::serve_pmi(const std::string& directory, PmiEvents events) {
  PmiJob job{order().job_id, order().pmi_hosts, order().pmi_host, directory, {}};
  for (const ProgramOrder& program : order().more_programs) {
    job.next_programs.push_back(program.first_rank);
  }
  const RankEnvironment environment = prepared_.host_environment();
  auto server = PmiServer::start(
      loop_, prepared_.bundle_root() + "/bin/hora-" + order().pmi, environment.pointers.data(), job,
      {[this, on_ready = std::move(events.on_ready)](const PmiReply& reply) {
         prepared_.use_pmi(reply);
         on_ready();
       },
       [this](int rank, int exit_code) { ranks_.abort_rank(rank, exit_code); },
       std::move(events.on_note), std::move(events.on_failed)});
  if (!server) return std::move(server).error();
  pmi_ = std::move(*server);
  return Ok{};
}

void HostJob::start() {
  phase_ = Phase::kRunning;
  watch_gpus();  // before a rank can cause a fault: the log is read from where it ends now
  ranks_.start();
  later_[1] = loop_.call_after(kWatchAfter, [this] { ranks_.watch_memory(); });
  on_child_ended();  // also reports those that never started
  if (ranks_.any_alive()) progress_.begin(static_cast<int>(order().ranks.size()));
}

// --- children ------------------------------------------------------------------------------------

// One SIGCHLD may stand for many children, so all that have ended are reaped.
void HostJob::on_child_ended() {
  bool reaped = false;
  while (true) {
    siginfo_t ended{};
    const int looked = ::waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT);
    if (looked != 0 && errno == EINTR) continue;
    if (looked != 0 || ended.si_pid == 0) break;
    // Its limits go with it.
    rlimit cpu_time{RLIM_INFINITY, RLIM_INFINITY};
    if (ended.si_code == CLD_KILLED && ended.si_status == SIGKILL) {
      ::prlimit(ended.si_pid, RLIMIT_CPU, nullptr, &cpu_time);
    }
    int status = 0;
    rusage usage{};
    const pid_t pid = ::wait4(ended.si_pid, &status, 0, &usage);
    if (pid <= 0) break;
    if (pmi_ && pid == pmi_->pid()) {
      pmi_->reaped(status);
      continue;
    }
    // Others are orphans that came to us as the subreaper.
    if (ranks_.reap(pid, status, usage, cpu_time.rlim_max)) reaped = true;
  }
  if (reaped) (void)report_gpu_faults();  // before the exits that they explain
  ranks_.report_exits();
  if (!ranks_.any_alive()) progress_.stop();
  advance();
}

bool HostJob::report_gpu_faults() {
  return gpus_.read_new([this](const XidMessage& message) {
    GpuFault fault;
    fault.device = message.device;
    fault.xid = message.code;
    fault.pid = message.pid;
    fault.program = message.program;
    fault.text = message.text;
    // The kernel's log counts processes as its first namespace does. The rank itself may have ended
    // by now.
    if (message.pid > 0 && in_first_pid_namespace()) {
      fault.rank =
          rank_of_process(static_cast<pid_t>(message.pid), ranks_.started(), strays_.mark());
    }
    link_.send(std::move(fault));
  });
}

SparedProcesses HostJob::spared() const { return {ranks_.living_pids(), pmi_ ? pmi_->pid() : -1}; }

// --- signals -------------------------------------------------------------------------------------

void HostJob::signal_everything(int signal) {
  ranks_.signal(signal);
  for (const ProcessEntry& stray : strays_.find(spared())) {
    // Members of a living rank's group have had it; for STOP and CONT twice is as good as once.
    signal_process(stray, signal);
  }
}

void HostJob::suspend() { signal_everything(SIGSTOP); }
void HostJob::resume() { signal_everything(SIGCONT); }

void HostJob::terminate(Milliseconds grace, int signal) {
  if (phase_ == Phase::kFinished) return;
  if (phase_ == Phase::kPrepared) return finish();
  on_child_ended();  // not ended by us: it had ended already
  if (phase_ == Phase::kFinished) return;
  const auto now = Clock::now();
  const bool begins_with_term = signal == SIGTERM;
  const auto deadline = now + (begins_with_term ? grace : 2 * grace);
  kill_at_ = kill_at_ ? std::min(*kill_at_, deadline) : deadline;
  term_at_ = now;
  release_reserve();
  if (begins_with_term && (!terminating_ || ranks_term_at_)) {
    terminate_ranks(std::min(kLeavingTimeout, grace / 2));
  } else if (!terminating_) {
    ranks_term_at_ = now + grace;
    (void)ranks_.terminate(signal, std::min(kLeavingTimeout, grace / 2));
  }
  terminating_ = true;
  advance();
}

void HostJob::end_rank(int rank, Milliseconds grace) {
  on_child_ended();  // if it has ended already it was not ended by us
  ranks_.end_rank(rank, grace);
}

void HostJob::launcher_gone() {
  ranks_.output().discard();
  if (phase_ == Phase::kDraining) drain();
}

void HostJob::kill_everything() {
  if (!give_up_at_) give_up_at_ = Clock::now() + kKillTimeout;
  ranks_.kill();
  strays_.kill(spared(), prepared_.cgroup());
}

void HostJob::release_reserve() {
  for (os::Fd& fd : reserve_) fd.reset();
}

// --- the way to the end --------------------------------------------------------------------------

// Looks at where the job stands and does what is due. Called after every event and timer.
void HostJob::advance() {
  if (phase_ == Phase::kRunning) {
    if (!ranks_.any_alive()) {
      begin_sweep();
    } else if (terminating_) {
      end_running_ranks();
    }
  } else if (phase_ == Phase::kSweeping) {
    sweep();
  }
}

void HostJob::terminate_ranks(Milliseconds time_limit) {
  ranks_term_at_.reset();
  termed_groups_ = ranks_.terminate(SIGTERM, time_limit);
}

// Ranks have had their signal. They live until they end or the grace is over; then they are killed
// until none is left, or until what is left is beyond killing.
void HostJob::end_running_ranks() {
  const auto now = Clock::now();
  if (ranks_term_at_ && now >= *ranks_term_at_) terminate_ranks(Milliseconds(0));
  const auto next = ranks_term_at_ ? std::min(*ranks_term_at_, *kill_at_) : *kill_at_;
  if (now < *kill_at_) return look_again(std::chrono::ceil<Milliseconds>(next - now));
  kill_everything();
  if (Clock::now() >= *give_up_at_) return begin_sweep();
  look_again(kKillAgain);
}

// MPI programs of another kind than the PMI that is served succeed, each as a world of one. One
// host says so for all.
void HostJob::check_pmi_use() {
  if (order().pmi_host != 0 || !ranks_.all_succeeded() || pmi_->is_used()) return;
  constexpr int kWarning = 3;
  link_.log({kWarning, "no rank has used the PMI that --pmi " + order().pmi +
                           " serves, so each rank of an MPI program was a world of its own; "
                           "programs of Open MPI need --pmi pmix, those of MPICH and Intel MPI "
                           "--pmi pmi1"});
}

void HostJob::begin_sweep() {
  phase_ = Phase::kSweeping;
  release_reserve();
  if (pmi_) {
    check_pmi_use();
    pmi_->end();
  }
  if (!terminating_) {
    // The ranks ended by themselves, so what they left may be about to end as well.
    term_at_ = Clock::now() + kOwnEndTimeout;
    kill_at_ = *term_at_ + std::min(Milliseconds(order().grace_ms), kStrayGraceLimit);
  }
  sweep();
}

void HostJob::sweep() {
  const auto now = Clock::now();
  if (!strays_.caught_up() && now < *give_up_at_) {
    kill_everything();
    return look_again(Milliseconds(0));
  }
  const SparedProcesses others = spared();
  const std::vector<ProcessEntry> left = strays_.find(others);
  if (strays_.is_clean(left, others)) return drain();
  if (give_up_at_ && now >= *give_up_at_) {
    strays_.give_up(left, others);
    return drain();
  }
  if (now >= *kill_at_) {
    kill_everything();
  } else if (now >= *term_at_ && !once_.strays_termed) {
    once_.strays_termed = true;
    strays_.terminate(left, termed_groups_);
  }
  // Our own orphans announce their end by SIGCHLD; what others have adopted does not.
  look_again(strays_.caught_up() ? poll_delay_ : Milliseconds(0));
  poll_delay_ = std::min(poll_delay_ * 2, kLongestPoll);
}

void HostJob::look_again(Milliseconds delay) {
  loop_.cancel(timer_);
  timer_ = loop_.call_after(delay, [this] {
    timer_ = 0;
    on_child_ended();
  });
}

// No writer is left, so every pipe ends once it is empty; a slow launcher may take its time.
void HostJob::drain() {
  loop_.cancel(timer_);
  timer_ = 0;
  phase_ = Phase::kDraining;
  ranks_.output().finish();
  ranks_.report_exits();
  if (ranks_.output().all_ended()) return finish();
  // Only credit can be missing. The process that ended the job need not wait for it.
  if (!terminating_ || std::exchange(once_.ranks_gone_reported, true)) return;
  ranks_.report_exits(true);
  link_.send(RanksGone{});
}

void HostJob::finish() {
  if (phase_ == Phase::kFinished) return;
  phase_ = Phase::kFinished;
  pmi_.reset();
  (void)report_gpu_faults();
  if (JobCgroup* cgroup = prepared_.cgroup()) cgroup->remove();
  on_finished_(strays_.account(ranks_.living_pids()));
}

}  // namespace hora::launcher
