#include "launcher/agent/host_job.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "launcher/agent/host_facts.h"
#include "launcher/protocol/agent_limits.h"
#include "rendezvous/os/out_of_resources.h"

namespace hora::launcher {

namespace {

using os::Clock;
using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds kOwnEndPatience{250};     // for what ranks leave: it may be about to end
constexpr Milliseconds kStrayGraceLimit{2'000};  // between TERM and KILL for such
constexpr Milliseconds kKillPatience{2'000};     // between KILL and giving up
constexpr Milliseconds kLongestPoll{40};
constexpr Milliseconds kChaseAtOnce{20};  // then the loop has its turn
constexpr int kOutputLost = 125;  // of a rank whose words did not all reach us, as exit code

std::int64_t microseconds(const timeval& time) {
  return std::int64_t{time.tv_sec} * 1'000'000 + time.tv_usec;
}

}  // namespace

HostJob::HostJob(os::EventLoop& loop, LauncherLink& link, PreparedJob prepared, std::string mark)
    : loop_(loop),
      link_(link),
      prepared_(std::move(prepared)),
      output_(loop, link),
      input_(loop, link) {
  scope_.root = read_process(::getpid()).value_or(ProcessEntry{});
  scope_.root.pid = ::getpid();
  scope_.mark = std::move(mark);
}

HostJob::~HostJob() {
  loop_.cancel(timer_);
  for (const auto timer : rank_timers_) loop_.cancel(timer);
  if (gpus_.fd() >= 0) loop_.unwatch(gpus_.fd());
}

Status HostJob::open(std::function<void(Goodbye)> on_finished) {
  on_finished_ = std::move(on_finished);
  for (os::Fd& fd : for_the_end_) {
    fd = os::Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return errno_error(errno, "opening /dev/null");
  }
  HORA_TRY(output_.open(static_cast<std::size_t>(order().output_window_bytes)));
  output_.set_on_progress([this] {
    report_exits();
    if (phase_ == Phase::kDraining) drain();
  });
  // Without it faults are told when a rank has ended.
  if (gpus_.fd() >= 0) {
    (void)loop_.watch(gpus_.fd(), EPOLLIN, [this](std::uint32_t) {
      if (!tell_gpu_faults()) loop_.unwatch(gpus_.fd());
    });
  }
  return Ok{};
}

Status HostJob::serve_pmi(const std::string& directory, std::function<void()> on_ready,
                          std::function<void(std::string)> on_note,
                          std::function<void(std::string)> on_failed) {
  const PmiJob job{order().job_id, order().pmi_hosts, order().pmi_host, directory};
  const RankEnvironment environment = prepared_.host_environment();
  auto server = PmiServer::start(loop_, prepared_.bundle_root() + "/bin/hora-" + order().pmi,
                                 environment.pointers.data(), job,
                                 {[this, on_ready = std::move(on_ready)](const PmiReply& reply) {
                                    prepared_.use_pmi(reply);
                                    on_ready();
                                  },
                                  [this](int rank, int exit_code) { abort_rank(rank, exit_code); },
                                  std::move(on_note), std::move(on_failed)});
  if (!server) return std::move(server).error();
  pmi_ = std::move(*server);
  return Ok{};
}

void HostJob::abort_rank(int number, int exit_code) {
  for (Rank& rank : ranks_) {
    if (rank.exit.rank != number || !rank.alive || rank.ended_by_us) continue;
    rank.aborted_with = exit_code;
    ::kill(-rank.pid, SIGKILL);
  }
}

// --- start and end of single ranks ------------------------------------------------------------

void HostJob::start() {
  phase_ = Phase::kRunning;
  ranks_.reserve(order().ranks.size());
  Started started;
  started.notes = prepared_.notes();
  auto last_sign = Clock::now();
  for (const RankOrder& rank : order().ranks) {
    start_rank(rank, started);
    // On a busy machine each may take long: every new process has to wait for its turn.
    if (Clock::now() - last_sign < Milliseconds(order().lease_ms) / 4) continue;
    link_.send(FrameType::kHeartbeat);
    last_sign = Clock::now();
  }
  link_.send(FrameType::kStarted, encode(fit(std::move(started))));
  on_child_ended();  // also reports those that never started
}

void HostJob::start_rank(const RankOrder& order, Started& started) {
  Rank& rank = ranks_.emplace_back();
  rank.exit.rank = order.rank;
  auto result = prepared_.start(order);
  if (auto* not_started = std::get_if<RankNotStarted>(&result)) {
    rank.exit.spawn_error = std::move(not_started->error);
    rank.exit.exit_code = not_started->exit_code;
    rank.exit.clock_ns = wall_clock_ns();
    return;
  }
  auto& process = std::get<StartedRank>(result);
  rank.pid = process.pid;
  rank.alive = true;
  started.pids.emplace_back(order.rank, rank.pid);
  // Without room for one more watched pipe the rank's output would be lost: end it instead.
  const bool watched =
      output_.add(order.rank, OutputStream::kStdout, std::move(process.stdout_pipe)) &&
      output_.add(order.rank, OutputStream::kStderr, std::move(process.stderr_pipe)) &&
      (!process.stdin_pipe.valid() || input_.add(order.rank, std::move(process.stdin_pipe)));
  if (!watched) {
    output_is_lost(rank, "its output cannot be watched; it is killed");
    ::kill(-rank.pid, SIGKILL);
  }
}

void HostJob::on_child_ended() {
  bool reaped = false;
  while (true) {
    int status = 0;
    rusage usage{};
    const pid_t pid = ::wait4(-1, &status, WNOHANG, &usage);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) break;
    if (pmi_ && pid == pmi_->pid()) {
      pmi_->reaped(status);
      continue;
    }
    // Others are orphans that came to us as the subreaper.
    const auto rank = std::find_if(ranks_.begin(), ranks_.end(),
                                   [pid](const Rank& r) { return r.alive && r.pid == pid; });
    if (rank == ranks_.end()) continue;
    reaped = true;
    take_exit(*rank, status, usage);
  }
  if (reaped) (void)tell_gpu_faults();  // before the exits that they explain
  report_exits();
  advance();
}

bool HostJob::tell_gpu_faults() {
  return gpus_.read_new([this](const XidMessage& message) {
    GpuFault fault;
    fault.device = message.device;
    fault.xid = message.code;
    fault.pid = message.pid;
    fault.program = message.program;
    fault.text = message.text;
    // The kernel's log counts processes as its first namespace does; a process of a rank is in its
    // session, and the rank itself may have ended by now.
    const bool counts_alike = message.pid > 0 && in_first_pid_namespace();
    const pid_t session = counts_alike ? ::getsid(static_cast<pid_t>(message.pid)) : -1;
    for (const Rank& rank : ranks_) {
      const bool own = counts_alike && (rank.pid == message.pid || rank.pid == session);
      if (own && rank.pid > 0) fault.rank = rank.exit.rank;
    }
    link_.send(FrameType::kGpuFault, encode(fit(std::move(fault))));
  });
}

void HostJob::take_exit(Rank& rank, int status, const rusage& usage) {
  rank.alive = false;
  rank.exit.clock_ns = wall_clock_ns();
  if (WIFSIGNALED(status)) {
    rank.exit.signal = WTERMSIG(status);
    rank.exit.core_dumped = WCOREDUMP(status);
  } else {
    rank.exit.exit_code = WEXITSTATUS(status);
  }
  if (rank.exit.signal == SIGKILL && rank.aborted_with) {
    rank.exit.signal = 0;
    rank.exit.exit_code = *rank.aborted_with;
  }
  rank.exit.terminated_by_us = rank.ended_by_us;
  if (rank.exit.signal == SIGKILL && !rank.ended_by_us) rank.exit.hint = oom_.verdict();
  rank.exit.max_rss_bytes = std::int64_t{usage.ru_maxrss} * 1024;
  rank.exit.user_time_us = microseconds(usage.ru_utime);
  rank.exit.system_time_us = microseconds(usage.ru_stime);
  if (WIFSIGNALED(status) || WEXITSTATUS(status) != 0) {
    rank.exit.last_operation = prepared_.flight_records().last_of(rank.exit.rank);
  }
  rank.exit.lost_record = prepared_.flight_records().lost_of(rank.exit.rank);
  input_.close(rank.exit.rank);
}

// A rank's exit is told behind its last words. Its streams have usually ended by then; when another
// process holds one open, kOutputEnd comes later.
void HostJob::report_exits() {
  for (Rank& rank : ranks_) {
    if (rank.alive || rank.reported || !output_.drain(rank.exit.rank)) continue;
    rank.reported = true;
    if (const auto loss = output_.loss_of(rank.exit.rank); !loss.empty()) {
      output_is_lost(rank, "some of its output is lost: " + loss);
    }
    const bool killed = rank.exit.signal == SIGKILL && !rank.ended_by_us;
    if (rank.output_lost && rank.exit.exit_code == 0 && (rank.exit.signal == 0 || killed)) {
      rank.exit.signal = 0;
      rank.exit.exit_code = kOutputLost;
    }
    rank.exit.last_stderr = output_.last_stderr(rank.exit.rank);
    link_.send(FrameType::kExit, encode(fit(rank.exit)));
  }
}

void HostJob::output_is_lost(Rank& rank, const std::string& what) {
  constexpr int kError = 4;
  rank.output_lost = true;
  link_.log({kError, "rank " + std::to_string(rank.exit.rank) + ": " + what});
}

std::vector<std::pair<int, pid_t>> HostJob::living_ranks() const {
  std::vector<std::pair<int, pid_t>> found;
  for (const Rank& rank : ranks_) {
    if (rank.alive) found.emplace_back(rank.exit.rank, rank.pid);
  }
  return found;
}

bool HostJob::any_alive() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.alive; });
}

// --- signals -------------------------------------------------------------------------------------

// A rank leads its own session and group. Its pid cannot be another's before we have reaped it.
void HostJob::signal_groups(int signal) {
  for (const Rank& rank : ranks_) {
    if (rank.alive) ::kill(-rank.pid, signal);
  }
}

void HostJob::signal_everything(int signal) {
  signal_groups(signal);
  for (const ProcessEntry& stray : strays()) {
    // Members of a living rank's group have had it; for STOP and CONT twice is as good as once.
    signal_process(stray, signal);
  }
}

void HostJob::signal_ranks(int signal) { signal_groups(signal); }
void HostJob::signal_rank(int rank, int signal) {
  for (const Rank& each : ranks_) {
    if (each.exit.rank == rank && each.alive) ::kill(-each.pid, signal);
  }
}
void HostJob::suspend() { signal_everything(SIGSTOP); }
void HostJob::resume() { signal_everything(SIGCONT); }

void HostJob::terminate(Milliseconds grace) {
  if (phase_ == Phase::kFinished) return;
  if (phase_ == Phase::kPrepared) {
    finish();
    return;
  }
  on_child_ended();  // who has ended already was not ended by us
  if (phase_ == Phase::kFinished) return;
  const auto now = Clock::now();
  const auto deadline = now + grace;
  kill_at_ = kill_at_ ? std::min(*kill_at_, deadline) : deadline;
  term_at_ = now;
  for (os::Fd& fd : for_the_end_) fd.reset();
  if (!terminating_) {
    terminating_ = true;
    for (Rank& rank : ranks_) {
      if (!rank.alive) continue;
      rank.ended_by_us = true;
      termed_groups_.insert(rank.pid);
    }
    signal_groups(SIGTERM);
    signal_groups(SIGCONT);  // a stopped one could not obey
  }
  advance();
}

void HostJob::end_rank(int rank, Milliseconds grace) {
  on_child_ended();  // if it has ended already it was not ended by us
  for (Rank& each : ranks_) {
    if (each.exit.rank != rank || !each.alive) continue;
    each.ended_by_us = true;
    ::kill(-each.pid, SIGTERM);
    ::kill(-each.pid, SIGCONT);
    rank_timers_.push_back(loop_.call_after(grace, [this, rank] {
      for (const Rank& slow : ranks_) {
        if (slow.exit.rank == rank && slow.alive) ::kill(-slow.pid, SIGKILL);
      }
    }));
  }
}

void HostJob::launcher_gone() {
  output_.discard();
  if (phase_ == Phase::kDraining) drain();
}

void HostJob::kill_everything() {
  const bool again = give_up_at_.has_value();
  if (!again) give_up_at_ = Clock::now() + kKillPatience;
  for (Rank& rank : ranks_) {
    if (!rank.alive) continue;
    rank.ended_by_us = true;
    ::kill(-rank.pid, SIGKILL);
    ::kill(rank.pid, SIGKILL);  // it may have left its group
  }
  // The look at the whole machine is slow: once, and not during a chase any more.
  std::vector<ProcessEntry> left;
  if (!again || caught_up_) left = strays();
  remember_killed(left);
  if (JobCgroup* cgroup = prepared_.cgroup()) cgroup->kill();
  // Stopped first, so that none forks while the others are being killed.
  for (const ProcessEntry& stray : left) signal_process(stray, SIGSTOP);
  for (const ProcessEntry& stray : left) signal_process(stray, SIGKILL);
  chase();
}

void HostJob::chase() {
  StrayScope scope = scope_;
  for (const auto& [number, pid] : living_ranks()) scope.spare.push_back(pid);
  if (pmi_) scope.spare.push_back(pmi_->pid());
  const Chase chase = chase_descendants(scope, kChaseAtOnce);
  remember_killed(chase.killed);
  caught_up_ = chase.caught_up;
}

// --- the way to the end -----------------------------------------------------------------------

// Looks at where the job stands and does what is due. Called after every event and timer.
void HostJob::advance() {
  if (phase_ == Phase::kRunning) {
    if (!any_alive()) {
      begin_sweep();
    } else if (terminating_) {
      const auto now = Clock::now();
      if (now < *kill_at_) {
        sweep_again(std::chrono::ceil<Milliseconds>(*kill_at_ - now));
      } else {
        kill_everything();
        if (Clock::now() >= *give_up_at_) {
          begin_sweep();
        } else {
          sweep_again(Milliseconds(20));
        }
      }
    }
    return;
  }
  if (phase_ == Phase::kSweeping) sweep();
}

void HostJob::begin_sweep() {
  phase_ = Phase::kSweeping;
  for (os::Fd& fd : for_the_end_) fd.reset();
  if (pmi_) pmi_->end();
  const auto now = Clock::now();
  if (!terminating_) {
    term_at_ = now + kOwnEndPatience;
    kill_at_ = *term_at_ + std::min(Milliseconds(order().grace_ms), kStrayGraceLimit);
  }
  sweep();
}

// Nothing where the kernel does not list them.
std::optional<std::vector<pid_t>> HostJob::children_but_ranks() const {
  auto children = list_children(scope_.root.pid);
  if (!children) return std::nullopt;
  for (const auto& [number, rank] : living_ranks()) std::erase(*children, rank);
  return children;
}

bool HostJob::only_ranks_are_left() const {
  siginfo_t info{};
  if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD) return true;
  if (!any_alive()) return false;
  const auto others = children_but_ranks();
  return !others || others->empty();
}

std::vector<ProcessEntry> HostJob::strays() const {
  auto listed = find_strays(scope_);
  // The shim has descriptors and memory of its own. It ends the job when this process ends so.
  if (!listed) os::exit_without_resources("the list of processes cannot be read");
  std::vector<ProcessEntry> found = *std::move(listed);
  const auto is_rank = [this](const ProcessEntry& process) {
    return std::any_of(ranks_.begin(), ranks_.end(), [&process](const Rank& rank) {
      return rank.alive && rank.pid == process.pid;
    });
  };
  const pid_t server = pmi_ ? pmi_->pid() : -1;
  std::erase_if(found, [&](const auto& each) { return is_rank(each) || each.pid == server; });
  return found;
}

void HostJob::remember_killed(const std::vector<ProcessEntry>& strays) {
  for (const ProcessEntry& stray : strays) killed_.emplace(stray.pid, stray.started_ticks);
}

void HostJob::sweep() {
  const auto now = Clock::now();
  if (!caught_up_ && now < *give_up_at_) {
    kill_everything();
    sweep_again(Milliseconds(0));
    return;
  }
  const std::vector<ProcessEntry> left = strays();
  if (left.empty() && only_ranks_are_left()) {
    drain();
    return;
  }
  if (give_up_at_ && now >= *give_up_at_) {
    list_survivors(left);
    drain();
    return;
  }
  if (now >= *kill_at_) {
    kill_everything();
  } else if (now >= *term_at_ && !strays_termed_) {
    strays_termed_ = true;
    remember_killed(left);
    for (const ProcessEntry& stray : left) {
      if (termed_groups_.count(stray.group) > 0) continue;
      signal_process(stray, SIGTERM);
      signal_process(stray, SIGCONT);
    }
  }
  // Our own orphans announce their end by SIGCHLD; what others have adopted does not.
  sweep_again(caught_up_ ? poll_delay_ : Milliseconds(0));
  poll_delay_ = std::min(poll_delay_ * 2, kLongestPoll);
}

// What forks and ends all the time may not be in `left`, though some of it is there at any moment.
void HostJob::list_survivors(const std::vector<ProcessEntry>& left) {
  for (const ProcessEntry& stray : left) survivors_.push_back(stray.pid);
  if (!left.empty()) return;
  for (const pid_t child : children_but_ranks().value_or(std::vector<pid_t>())) {
    survivors_.push_back(child);
  }
  uncounted_ = survivors_.empty();
}

void HostJob::sweep_again(Milliseconds delay) {
  loop_.cancel(timer_);
  timer_ = loop_.call_after(delay, [this] {
    timer_ = 0;
    on_child_ended();
  });
}

void HostJob::drain() {
  loop_.cancel(timer_);
  timer_ = 0;
  phase_ = Phase::kDraining;
  output_.finish();
  report_exits();
  if (output_.all_ended()) finish();
}

void HostJob::finish() {
  if (phase_ == Phase::kFinished) return;
  phase_ = Phase::kFinished;
  Goodbye goodbye;
  for (const Rank& rank : ranks_) {
    if (rank.alive) survivors_.push_back(rank.pid);
  }
  pmi_.reset();
  (void)tell_gpu_faults();
  goodbye.survivor_pids = survivors_;
  goodbye.survivors = static_cast<int>(survivors_.size()) + (uncounted_ ? 1 : 0);
  goodbye.forking = goodbye.survivors > 0 && !caught_up_;
  goodbye.killed = static_cast<int>(killed_.size());
  if (JobCgroup* cgroup = prepared_.cgroup()) cgroup->remove();
  on_finished_(std::move(goodbye));
}

}  // namespace hora::launcher
