// SPDX-License-Identifier: Apache-2.0
// One direction for everything: a report of the fleet, a signal or a timer becomes an Event; the
// job state answers with Actions; feed() hands each to the part that does it. Nothing here
// decides which rank is ended, when and why.
#include "launcher/supervisor/supervisor.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "launcher/control/top_text.h"
#include "launcher/failures/failure_code.h"
#include "launcher/output/user_terminal.h"
#include "launcher/report/resource_usage.h"
#include "launcher/runs/elastic_run.h"
#include "launcher/runs/static_run.h"
#include "launcher/text/units.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/random.h"
#include "rendezvous/tls/tls_stream.h"

namespace hora::launcher {

namespace {

// Within a start timeout: heartbeats are less.
constexpr std::uint64_t kLeastShipped = 1u << 20;

constexpr Milliseconds kEngineWords{500};  // on their way, when it has ended the job
constexpr Milliseconds kLastWords{300};    // for other readers
// A user who has ended the job waits for a reader only while it reads.
constexpr Milliseconds kReaderTimeout{4000};
constexpr Milliseconds kLookAtReader{500};

std::unique_ptr<Run> make_usual_run(RunContext context) {
  if (context.spec.elastic) return std::make_unique<ElasticRun>(std::move(context));
  return std::make_unique<StaticRun>(std::move(context));
}

// Time was up for a host, or for all of them: where do the others stand?
bool is_slow_start(const Cause& cause) {
  const std::string_view code = cause.failure.code;
  return code == failure::kStartTimeout || code == failure::kConnectTimeout ||
         code == failure::kShellTimeout || code == failure::kSshBusy;
}

}  // namespace

Supervisor::Supervisor(JobSpec spec, Installation installation, EnvironmentList environment)
    : Supervisor(std::move(spec), std::move(installation), std::move(environment), make_usual_run) {
}

Supervisor::Supervisor(JobSpec spec, Installation installation, EnvironmentList environment,
                       MakeRun make_run)
    : job_(std::move(spec), std::move(installation), std::move(environment)),
      make_run_(std::move(make_run)),
      narrator_(job_.spec, job_.environment) {}

Supervisor::~Supervisor() = default;

// --- what the fleet reports ----------------------------------------------------------------------

struct Supervisor::FleetEvents {
  Supervisor& job;
  int host;

  void operator()(const StageReached& reached) const {
    job.narrator_.reach(host, job.fleet_->name(host), reached.stage, reached.detail);
  }

  void operator()(const AgentGreeted& greeted) const {
    job.narrator_.agent_greeted(host, job.fleet_->name(host), *job.fleet_->hello(host),
                                greeted.lacks_runtime, job.fleet_->shipped_bytes(host));
    job.feed(HostGreeted{host});
  }

  void operator()(const RuntimeSupplied& supplied) const {
    const Supply& supply = supplied.supply;
    job.narrator_.runtime_supplied(job.fleet_->name(host),
                                   {supply.sent_bytes, supply.fetched_bytes, supply.sources});
  }

  void operator()(const RuntimeMissing& missing) const {
    // The ranks of an elastic job that run have what they need.
    if (job.job_.spec.elastic && job.running_since_) {
      return (*this)(Failure{std::string(failure::kShip), missing.error.message, ""});
    }
    job.launch_failed(failure::kShip, missing.error);
  }

  void operator()(AgentLeft left) const {
    const auto& exits = job.state_->outcome().exits;
    int missing = 0;
    // An agent that sends its goodbye before the exits of all its ranks has lost some of them.
    for (const Slot& slot : job.run_->plan().hosts[host].slots)
      missing += exits.count(slot.rank) == 0;
    job.feed(HostFinished{host, std::move(left.goodbye), missing});
  }

  void operator()(AgentLost lost) const {
    job.feed(HostLost{host, std::move(lost.detail), lost.silent_since});
  }

  void operator()(Failure failure) const { job.feed(HostFailed{host, std::move(failure)}); }

  void operator()(ProbeResult result) const { job.run_->on_probe_result(host, std::move(result)); }

  void operator()(RelayPort relay) const { job.run_->on_relay_port(relay.port); }
  void operator()(const RelayOpened& opened) const { job.run_->on_relayed(opened); }
  void operator()(RelayedBytes relayed) const { job.run_->on_relayed(std::move(relayed)); }
  void operator()(const RelayedBytesTaken& taken) const { job.run_->on_relayed(taken); }

  void operator()(AgentReady ready) const {
    job.narrator_.reach(host, job.fleet_->name(host), Stage::kReady);
    job.run_->on_ready(host, std::move(ready));
    job.feed(HostReady{host});
  }

  void operator()(const Started& started) const {
    job.narrator_.reach(host, job.fleet_->name(host), Stage::kRanks);
    job.narrator_.ranks_started(host, job.fleet_->name(host), started,
                                job.fleet_->shipped_bytes(host));
    job.run_->on_started(host, started);
  }

  void operator()(const RankOutput& output) const {
    job.hang_report_->note_sign();
    job.narrator_.output_follows();
    job.run_->streams()->sinks().output(host, output.rank, output.stream, output.bytes);
  }

  void operator()(const RankOutputEnd& end) const {
    job.run_->streams()->sinks().end_of_stream(host, end.rank, end.stream);
  }
  void operator()(const InputTaken& taken) const {
    job.run_->streams()->input_delivered(taken.bytes);
  }

  void operator()(RankExit exit) const {
    job.run_->streams()->rank_ended(exit.rank);
    job.narrator_.rank_ended(job.fleet_->name(host), exit);
    job.feed(RankEnded{host, std::move(exit), job.fleet_->clock_offset(host)});
  }

  void operator()(const RankProgress& progress) const {
    job.hang_report_->note_sign();
    job.run_->on_progress(host, progress);
  }

  void operator()(StackReport report) const {
    job.hang_report_->on_stacks(host, std::move(report));
  }

  void operator()(const RankSamples& samples) const {
    if (job.control_) job.control_->on_samples(host, samples);
  }

  void operator()(GpuFault fault) const {
    job.narrator_.gpu_failed(job.fleet_->name(host), std::move(fault));
  }

  void operator()(RanksGone) const { job.feed(HostRanksGone{host}); }
  void operator()(AgentSuspended) const { job.suspension_->on_host_suspended(); }
  void operator()(const LogLine& line) const {
    job.narrator_.agent_logged(job.fleet_->name(host), line);
  }

  // These the fleet keeps for itself.
  void operator()(const Hello&) const {}
  void operator()(const DeliveryReport&) const {}
  void operator()(const TreeState&) const {}
  void operator()(const Goodbye&) const {}
};

// --- set-up --------------------------------------------------------------------------------------

Result<int> Supervisor::run() {
  // What fails here fails before anything was started: nothing is to be undone.
  HORA_TRY(set_up());
  // A signal that came while the files of --ship were read is the reason for their end, and must
  // not be reported as their failure.
  signals_->take();
  if (const Status& packed = job_.ship_files.status(); !packed && !is_over()) {
    launch_failed(failure::kShip, packed.error());
  }
  if (!is_over()) {
    run_->connect();
    fleet_->begin_heartbeats();
    arm_deadline();
  }
  HORA_TRY(loop_->run());
  return leaving_.exit_code;
}

Status Supervisor::set_up() {
  auto loop = os::EventLoop::create();
  if (!loop) return std::move(loop).error();
  loop_ = std::move(*loop);
  // Before any thread starts: none must take them.
  auto signals = Signals::watch(*loop_, [this](int signal) { on_signal(signal); });
  if (!signals) return std::move(signals).error();
  signals_ = std::move(*signals);
  HORA_TRY(identify());
  fleet_ = std::make_unique<Fleet>(*loop_, job_.spec, job_.installation,
                                   Fleet::Options{.probes = true,
                                                  .loads_runtime = true,
                                                  .lease = job_.spec.lease,
                                                  .make_remote = owner_.make_remote,
                                                  .ship_files = &job_.ship_files},
                                   [this](int host, FleetEvent event) {
                                     std::visit(FleetEvents{*this, host}, std::move(event));
                                   });
  if (job_.spec.pty) job_.spec.pty = size_of_terminal();
  suspension_ = std::make_unique<Suspension>(*loop_, *fleet_, [this] {
    if (run_->streams() != nullptr) run_->streams()->release_terminal();
    ::raise(SIGSTOP);
    // The shell's fg or bg has continued us; the terminal may be ours again.
    if (run_->streams() != nullptr) run_->streams()->resume_input();
  });
  run_ = make_run_(run_context());
  HORA_TRY(run_->make_plan());
  state_.emplace(state_options(), narrator_.start());
  narrator_.open(*loop_, job_.identity.job_id);
  if (job_.spec.engine) narrator_.allocation_found(*job_.spec.engine);
  make_hang_report();
  open_control();
  return watch_starter();
}

Status Supervisor::identify() {
  job_.identity.job_id = os::random_token();
  job_.identity.token = os::random_token();
  if (!job_.spec.rendezvous_tls) return Ok{};
  auto side = tls::make_server_side("hora " + job_.identity.job_id);
  if (!side) return std::move(side).error().with_context("--rendezvous-tls");
  job_.accept_stream = std::move(side->accept);
  job_.identity.tls_fingerprint = std::move(side->fingerprint);
  return Ok{};
}

RunContext Supervisor::run_context() {
  return {job_.spec,
          job_.environment,
          job_.identity,
          job_.accept_stream,
          job_.ship_files,
          *loop_,
          *fleet_,
          narrator_,
          [this](const Event& event) { feed(event); },
          [this] { return is_over(); },
          [this](const Plan& plan) { return accept_plan(plan); },
          [this] { on_running(); },
          [this](int fd, int errnum) { on_console_broken(fd, errnum); }};
}

JobState::Options Supervisor::state_options() const {
  JobState::Options options;
  options.hosts = static_cast<int>(run_->plan().hosts.size());
  options.grace = job_.spec.grace;
  options.start_timeout = job_.spec.start_timeout;
  options.timeout = job_.spec.timeout;
  options.elastic = job_.spec.elastic.has_value();
  options.keep_going = job_.spec.keep_going;
  options.asks_every_host = job_.spec.manages_cache;
  return options;
}

Status Supervisor::watch_starter() {
  if (!job_.spec.end_with) return Ok{};
  auto starter = os::ProcessEnd::watch(*loop_, *job_.spec.end_with, [this] {
    narrator_.print("process " + std::to_string(*job_.spec.end_with) + " has ended (--end-with)\n");
    // A signal to the whole group ended it and is pending here, or about to be.
    signals_->take();
    if (interrupted_by_ == 0) on_signal(SIGTERM);
  });
  if (!starter) return std::move(starter).error().with_context("--end-with");
  starter_ = std::move(*starter);
  return Ok{};
}

Status Supervisor::accept_plan(const Plan& plan) {
  HORA_TRY(check_shown_ranks(job_.spec, plan));
  if (!job_.spec.chaos) return Ok{};
  auto steps = schedule_chaos(*job_.spec.chaos, plan);
  if (!steps) return std::move(steps).error();
  FaultInjector::Handlers handlers;
  // A fault of a rank that has ended already is reported as not struck.
  handlers.signal = [this](const ChaosStep& step) {
    if (!fleet_->is_open(step.host) || state_->outcome().exits.count(step.rank) != 0) return false;
    fleet_->send(step.host, SignalRank{step.rank, step.signal});
    return true;
  };
  handlers.on_strike = [this](const ChaosStep& step, Milliseconds at, bool sent) {
    narrator_.fault_injected({at, fleet_->name(step.host), step.rank, step.signal, sent});
  };
  faults_ = std::make_unique<FaultInjector>(*loop_, std::move(*steps), std::move(handlers));
  return Ok{};
}

void Supervisor::make_hang_report() {
  HangReport::Handlers handlers;
  handlers.ask = [this](int host, Milliseconds timeout) {
    if (!fleet_->is_open(host)) return false;
    fleet_->send(host, DumpStacks{timeout});
    return true;
  };
  handlers.hosts = [this]() -> const std::vector<HostPlan>& { return run_->plan().hosts; };
  handlers.report = [this](const std::string& text) { narrator_.hang_report(text); };
  handlers.with_own_frames = job_.spec.verbose;
  hang_report_ = std::make_unique<HangReport>(*loop_, std::move(handlers));
}

void Supervisor::open_control() {
  if (job_.spec.manages_cache) return;
  JobControl::Handlers handlers;
  handlers.state = [this] {
    return is_over() ? "ending" : running_since_ ? "running" : "starting";
  };
  handlers.plan = [this]() -> const Plan& { return run_->plan(); };
  handlers.cancel = [this] {
    narrator_.print("horarun cancel ends the job\n");
    end_by_user(SIGTERM);
  };
  handlers.ask = [this](int host) {
    if (!running_since_ || host >= fleet_->size() || !fleet_->is_open(host)) return false;
    fleet_->send(host, SampleRanks{});
    return true;
  };
  handlers.show_progress = [this](const JobFigures& figures) { show_progress(figures); };
  control_ = std::make_unique<JobControl>(*loop_, job_.spec, job_.environment, narrator_.start(),
                                          std::move(handlers));
}

// A terminal has one line that is drawn again; elsewhere there is a line each time. While the ranks
// meet, the line of the start names those that are missing.
void Supervisor::show_progress(const JobFigures& figures) {
  if (narrator_.shows_start()) return;
  const std::size_t width = narrator_.live_width();
  constexpr std::string_view kName = "horarun: ";
  const std::string text = progress_text(figures, ran(), width - std::min(width, kName.size()));
  if (width == 0) return narrator_.progress(text, figures);
  run_->streams()->sinks().show_status(std::string(kName) + text);
}

void Supervisor::watch_for_stall() {
  if (job_.spec.on_stall == StallPolicy::kIgnore) return;
  const std::string silence = "no rank has written anything or ended a collective for " +
                              std::to_string(job_.spec.stall_after.count() / 1000) + " s";
  HangReport::StallHandlers handlers;
  handlers.on_computing = [this, silence](const std::vector<int>& ranks, int percent) {
    const std::string who = (ranks.size() == 1 ? "rank " : "ranks ") + number_ranges(ranks);
    narrator_.print(silence + " (--stall-after), but " + who +
                    (ranks.size() == 1 ? " computes (" : " compute (at least ") +
                    std::to_string(percent) + "% of a CPU): not stalled\n");
  };
  // The report comes first, whatever the policy: a job that was ended has nothing left to show.
  handlers.on_stall = [this, silence] {
    if (state_->ending()) return;
    narrator_.stalled(job_.spec.stall_after, silence + " (--stall-after)\n");
    if (job_.spec.on_stall == StallPolicy::kWarn) return;
    hang_report_->begin("stall", [this, silence] {
      if (job_.spec.on_stall != StallPolicy::kKill) return;
      feed(LaunchFailed{{std::string(failure::kStalled), silence + "; the job was ended", ""},
                        exit_code_of_failure(failure::kStalled)});
    });
  };
  hang_report_->watch_for_stall(job_.spec.stall_after, std::move(handlers));
}

// --- what happens to this process ----------------------------------------------------------------

void Supervisor::on_signal(int signal) {
  if (signals_ && signals_->from_terminal()) narrator_.key_pressed();
  switch (signal) {
    case SIGQUIT:  // Ctrl-\ asks where the job stands, or its start
      if (state_->ending()) return feed(UserSignal{signal});
      if (!state_->started()) return narrator_.show_start();
      return hang_report_->begin("SIGQUIT", [] {});
    case SIGUSR1:
    case SIGUSR2:
      return fleet_->send_all(SignalRanks{signal});
    case SIGTSTP:
      return suspension_->begin();
    case SIGCONT:  // handled where we stopped, unless it came before that, or STOP cannot be
                   // handled
      if (run_->streams() != nullptr) run_->streams()->resume_input();
      return suspension_->call_off();
    case SIGWINCH:
      if (run_->streams() != nullptr) run_->streams()->resize_terminal();
      return;
    default:
      return end_by_user(signal);
  }
}

void Supervisor::end_by_user(int signal) {
  interrupted_by_ = signal;
  suspension_->call_off();
  if (leaving_.flushing) return stop_waiting_for_readers(signal);
  feed(UserSignal{signal});
  if (std::exchange(leaving_.watches_reader, true) || run_->streams() == nullptr) return;
  watch_reader(run_->streams()->written(), Milliseconds(0));
}

void Supervisor::on_console_broken(int fd, int errnum) {
  if (leaving_.output.console_errno == 0) {
    leaving_.output.console_errno = errnum;
    leaving_.broken_console = fd == STDOUT_FILENO ? "standard output" : "standard error";
  }
  // A reader that has seen enough, such as head(1), is not an error of the job.
  if (errnum == EPIPE) return feed(OutputClosed{});
  launch_failed(failure::kOutput, errno_error(errnum, "writing to " + leaving_.broken_console));
}

void Supervisor::on_running() {
  running_since_ = Clock::now();
  if (control_) control_->on_running();
  watch_for_stall();
  if (faults_) faults_->begin();
}

void Supervisor::arm_deadline() {
  if (deadline_.timer != 0) loop_->cancel(deadline_.timer);
  deadline_.timer = 0;
  const auto deadline = state_->next_deadline();
  if (!deadline) return;
  deadline_.timer = loop_->call_at(*deadline, [this] {
    deadline_.timer = 0;
    // Before a job that ran out of time is ended: where does it stand?
    if (state_->started() && !state_->ending() && !std::exchange(deadline_.hang_reported, true)) {
      return hang_report_->begin("--timeout", [this] { feed(ClockTick{}); });
    }
    // It would end its ranks if it had the time. To leave it says nothing about them, and helps no
    // one: they end no sooner.
    if (state_->ending() && fleet_->has_slow_host()) return feed(StillEnding{});
    // Gigabytes take longer than a start: as long as they move, it has not begun.
    const std::uint64_t shipped = state_->started() ? 0 : fleet_->shipping();
    if (shipped > std::exchange(deadline_.shipped, shipped) + kLeastShipped)
      return feed(StillShipping{});
    feed(ClockTick{.output_waits = run_->streams() != nullptr && run_->streams()->is_behind()});
  });
}

// --- the job state -------------------------------------------------------------------------------

void Supervisor::feed(const Event& event) {
  const bool was_over = is_over();
  const auto actions = state_->step(event, Clock::now());
  // Where no host has answered, nothing has to end, and the job is done at once.
  if (!was_over && is_over()) {
    if (state_->outcome().cause && is_slow_start(*state_->outcome().cause)) {
      narrator_.keep_start_table();
    }
    narrator_.end_start();
  }
  // Before the actions: none of them may race with a planned signal.
  if (is_over() && faults_) faults_->stop();
  for (const Action& action : actions) {
    if (std::holds_alternative<PrepareAll>(action)) {
      run_->prepare_all();
    } else if (std::holds_alternative<StartAll>(action)) {
      run_->start_all();
    } else if (const auto* terminate = std::get_if<TerminateHost>(&action)) {
      // Not within the step that has decided this.
      if (run_->end_host(terminate->host)) continue;
      if (fleet_->close(terminate->host, terminate->grace, terminate->signal)) {
        loop_->post([this, host = terminate->host] { feed(HostFinished{host, {}}); });
      }
    } else if (const auto* drop = std::get_if<DropHost>(&action)) {
      fleet_->close(drop->host);
    } else if (std::holds_alternative<Finish>(action)) {
      finish();
    }
  }
  if (!state_->done()) arm_deadline();
  run_->on_job_event(event);
}

void Supervisor::launch_failed(std::string_view code, const Error& error) {
  feed(LaunchFailed{{std::string(code), error.message, ""}, exit_code_of_failure(code)});
}

// --- the end -------------------------------------------------------------------------------------

void Supervisor::finish() {
  narrator_.mark("all ranks ended");
  leaving_.flushing = true;
  // By way of the loop: the end may come before it runs.
  if (run_->streams() == nullptr) return loop_->post([this] { leave(); });
  run_->streams()->finish([this] { leave(); });
}

// A job that its user ends, from the first signal on.
void Supervisor::watch_reader(std::size_t written_before, Milliseconds idle) {
  loop_->call_after(kLookAtReader, [this, written_before, idle_before = idle] {
    if (leaving_.begun) return;
    const std::size_t written = run_->streams()->written();
    const auto idle = written == written_before ? idle_before + kLookAtReader : Milliseconds(0);
    if (idle < kReaderTimeout || !state_->ranks_gone()) return watch_reader(written, idle);
    feed(OutputAbandoned{});
    narrator_.lose({"the last output of the ranks",
                    "it was not read for " + format_duration(kReaderTimeout),
                    std::string(failure::kOutput)});
    stop_waiting_for_readers(interrupted_by_);
  });
}

// Reports the outcome once the ranks' output is written, or is not awaited any more.
void Supervisor::leave() {
  if (std::exchange(leaving_.begun, true)) return;
  narrator_.end_start();
  find_lost_records();
  explain_end();
  if (run_->exit_code() != 0 && interrupted_by_ == 0) state_->set_exit_code(run_->exit_code());
  EndedJob ended{state_->outcome(),
                 run_->plan(),
                 hellos_of(*fleet_),
                 hang_report_->last_text(),
                 leaving_.output,
                 {},
                 {},
                 {},
                 {}};
  ended.ran = ran();
  if (control_) ended.usage = control_->usage().points();
  for (int host = 0; host < fleet_->size(); ++host) ended.local.push_back(!fleet_->is_remote(host));
  if (restarts_ != nullptr) decide_restart(ended);
  leaving_.exit_code = narrator_.end(ended);
  // Or its user would think that the program had survived them.
  if (faults_ && leaving_.exit_code == 0 && faults_->left() > 0) {
    narrator_.print("warning: the job has ended before " + counted(faults_->left(), "fault") +
                    " of --chaos could be injected\n");
  }
  narrator_.flush([this](bool events_lost) {
    // There is nowhere left to say it.
    if (leaving_.exit_code == 0 && events_lost) leaving_.exit_code = kExitLauncher;
    if (control_) control_->on_end(leaving_.exit_code);
    loop_->stop();
  });
}

// A batch system ends a job by signals, to whichever process they come first; its words come
// another way, and as late as a moment after.
void Supervisor::explain_end() {
  const auto& cause = state_->outcome().cause;
  if (!owner_.explain || !cause) return;
  const auto timeout = state_->may_be_ended_from_outside() ? kEngineWords : Milliseconds(0);
  auto failure = owner_.explain(*cause, timeout);
  if (!failure) return;
  if (!running_since_ && job_.spec.engine && failure->advice.empty()) {
    failure->advice =
        "if that job was over before, its variables are left in this environment: --engine none "
        "ignores them";
  }
  state_->set_cause(std::move(*failure));
}

std::vector<std::string> Supervisor::unreached_hosts() const {
  if (!state_ || running_since_ || !state_->outcome().exits.empty()) return {};
  const JobOutcome& outcome = state_->outcome();
  if (!outcome.cause || outcome.cause->kind != Cause::Kind::kHost) return {};
  std::vector<std::string> names{fleet_->name(outcome.cause->host)};
  for (const Cause& each : outcome.unreached) names.push_back(fleet_->name(each.host));
  return names;
}

Milliseconds Supervisor::ran() const {
  if (!running_since_) return Milliseconds(0);
  return std::chrono::duration_cast<Milliseconds>(Clock::now() - *running_since_);
}

void Supervisor::decide_restart(EndedJob& ended) {
  const Milliseconds ran = this->ran();
  const auto& hosts = run_->plan().hosts;
  const auto decision = restarts_->decide(state_->outcome(), hosts, {interrupted_by_ != 0, ran});
  ended.failed_attempts = restarts_->failed();
  ended.why_not_restarted = decision.why_not;
  if (!decision.again) return;
  next_attempt_ = restarted(job_.spec, state_->outcome(), hosts);
  // The limit is that of all attempts together.
  if (auto& limit = next_attempt_->timeout) limit = std::max(*limit - ran, Milliseconds(1));
  const std::string changes = restart_changes(job_.spec, *next_attempt_);
  const Milliseconds delay = job_.spec.restart->delay;
  ended.restart = restarts_->count_text();
  if (delay.count() > 0) ended.restart += " in " + format_duration(delay);
  if (!changes.empty()) ended.restart += ": " + changes;
}

// After the last rank has ended: the user does not wait for a slow reader of the output.
void Supervisor::stop_waiting_for_readers(int signal) {
  if (!leaving_.begun) leaving_.output.given_up_by = signal;
  leave();
  loop_->call_after(kLastWords, [this] { loop_->stop(); });
}

void Supervisor::find_lost_records() {
  const std::string output(failure::kOutput);
  if (run_->streams() != nullptr) {
    for (const JobStreams::CutFile& file : run_->streams()->cut_files()) {
      narrator_.lose(
          {"--output-filename: " + file.path, std::system_category().message(file.errnum), output});
    }
  }
  const auto& cause = state_->outcome().cause;
  const bool is_cause = cause && cause->failure.code == failure::kOutput;
  const int errnum = leaving_.output.console_errno;
  if (errnum != 0 && errnum != EPIPE && !is_cause) {
    narrator_.lose({leaving_.broken_console, std::system_category().message(errnum), output});
  }
}

}  // namespace hora::launcher
