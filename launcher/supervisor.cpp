#include "launcher/supervisor.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "launcher/agent/host_facts.h"
#include "launcher/exit_code.h"
#include "launcher/failure_code.h"
#include "launcher/locality.h"
#include "launcher/outcome_text.h"
#include "rendezvous/os/log.h"
#include "rendezvous/os/random.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kComponent = "horarun";
constexpr Milliseconds kSuspendPatience{1'000};
constexpr Milliseconds kLeavePatience{1'000};  // from an agent's goodbye to its end

std::string u32_payload(std::uint32_t value) {
  std::string out;
  append_u32(out, value);
  return out;
}

// Connections, files and links need descriptors; the ranks must not inherit the raised limit, so
// this runs after the local agent was started.
void raise_descriptor_limit(std::size_t needed) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, needed);
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    os::log_debug(kComponent, "the limit of open files could not be raised");
  }
}

}  // namespace

Supervisor::Supervisor(JobSpec spec, Installation installation, EnvironmentList environment)
    : spec_(std::move(spec)),
      installation_(std::move(installation)),
      environment_(std::move(environment)),
      events_(spec_.json) {}

// Links go before the transports that pump them, everything before the loop.
Supervisor::~Supervisor() {
  hosts_.clear();
  connector_.reset();
}

Result<int> Supervisor::run() {
  HORA_TRY(make_plan());
  HORA_TRY(set_up());
  connect_hosts();
  beat();
  arm_deadline();
  HORA_TRY(loop_->run());
  print_outcome();
  if (spec_.timings) std::fputs(timings_.text().c_str(), stderr);
  return state_->outcome().exit_code();
}

Status Supervisor::set_up() {
  auto loop = os::EventLoop::create();
  if (!loop) return std::move(loop).error();
  loop_ = std::move(*loop);
  auto signals = Signals::watch(*loop_, [this](int signal) { on_signal(signal); });
  if (!signals) return std::move(signals).error();
  signals_ = std::move(*signals);
  identity_.job_id = os::random_token();
  identity_.token = os::random_token();

  JobState::Options options;
  options.hosts = static_cast<int>(plan_.hosts.size());
  options.grace = spec_.grace;
  options.start_timeout = spec_.start_timeout;
  options.timeout = spec_.timeout;
  state_.emplace(options, timings_.start());

  if (open_hosts_.empty()) adopt(std::move(plan_));
  return Ok{};
}

Status Supervisor::make_plan() {
  std::vector<Host> hosts = settle_named_slots(spec_);
  if (!has_open_slots(hosts)) {
    auto plan = plan_job(hosts, spec_.num_proc);
    if (!plan) return std::move(plan).error();
    plan_ = std::move(*plan);
    return Ok{};
  }
  for (Host& host : hosts) {
    if (host.slots == 0) continue;
    plan_.hosts.push_back({host, static_cast<int>(plan_.hosts.size()), {}});
    open_hosts_.push_back(std::move(host));
  }
  return Ok{};
}

void Supervisor::adopt(Plan plan) {
  plan_ = std::move(plan);
  streams_ = std::make_unique<JobStreams>(
      *loop_, spec_, plan_,
      JobStreams::Handlers{[this](int host, FrameType type, std::string_view payload) {
                             const auto& link = hosts_[host].link;
                             if (!link || !link->is_open()) return false;
                             link->send(type, payload);
                             return true;
                           },
                           [this](int errnum) { on_stdout_broken(errnum); }});
}

// The plan fills hosts in order, so those that it leaves out are the last ones.
Status Supervisor::count_gpu_slots() {
  std::vector<int> gpus;
  for (const HostRun& run : hosts_) gpus.push_back(run.hello->gpus);
  auto hosts = settle_gpu_slots(open_hosts_, gpus);
  if (!hosts) return std::move(hosts).error();
  auto plan = plan_job(*hosts, spec_.num_proc);
  if (!plan) return std::move(plan).error();
  for (std::size_t host = plan->hosts.size(); host < hosts_.size(); ++host) {
    feed(HostUnneeded{static_cast<int>(host)});
  }
  hosts_.resize(plan->hosts.size());
  adopt(std::move(*plan));
  open_hosts_.clear();
  return streams_->open();
}

// --- connecting ----------------------------------------------------------------------------------

void Supervisor::connect_hosts() {
  std::vector<Host> named;
  for (const HostPlan& host : plan_.hosts) named.push_back(host.host);
  std::vector<bool> local(named.size(), false);
  if (spec_.transport == TransportKind::kAuto) local = find_local_hosts(named);

  hosts_.resize(named.size());
  std::vector<int> order;  // the local ones first: they must not inherit the raised limit
  for (int i = 0; i < static_cast<int>(named.size()); ++i) {
    hosts_[i].remote = !local[i];
    if (local[i])
      order.insert(order.begin(), i);
    else
      order.push_back(i);
  }
  bool prepared = false;
  const auto prepare = [&]() -> Status {
    prepared = true;
    const std::size_t files =
        spec_.output_directory.empty() ? 0 : 2 * static_cast<std::size_t>(plan_.world_size);
    raise_descriptor_limit(64 + 4 * hosts_.size() + files);
    return streams_ ? streams_->open() : Status(Ok{});
  };
  const auto deadline = timings_.start() + spec_.start_timeout;
  connector_ = std::make_unique<HostConnector>(
      spec_, installation_, hosts_.size() > 1,
      [this](int host, Stage stage, std::string_view detail) {
        loop_->post(
            [this, host, stage, text = std::string(detail)] { on_stage(host, stage, text); });
      });
  for (const int i : order) {
    if (hosts_[i].remote && !prepared) {
      if (auto ready = prepare(); !ready) return launch_failed(failure::kUsage, ready.error());
    }
    auto stream = connector_->connect(named[i], i, !hosts_[i].remote, deadline);
    if (!stream) {
      feed(HostFailed{i,
                      {std::string(hosts_[i].remote ? failure::kConnect : failure::kAgent),
                       stream.error().message, ""}});
      return;
    }
    hosts_[i].link = std::make_unique<HostLink>(
        *loop_, std::move(*stream),
        HostLink::Handlers{[this, i](Frame frame) { on_frame(i, std::move(frame)); },
                           [this, i](std::string detail) { on_link_end(i, std::move(detail)); }});
    if (auto opened = hosts_[i].link->open(); !opened) {
      feed(HostFailed{i, {std::string(failure::kInternal), opened.error().message, ""}});
      return;
    }
  }
  if (!prepared) {
    if (auto ready = prepare(); !ready) return launch_failed(failure::kUsage, ready.error());
  }
  timings_.mark("connections begun");
}

void Supervisor::on_stage(int host, Stage stage, std::string_view detail) {
  if (host >= static_cast<int>(hosts_.size())) return;  // not needed after all
  hosts_[host].stage = stage;
  hosts_[host].stage_detail = detail;
  events_.emit("stage", {{"host", name_of(host)},
                         {"stage", std::string(stage_name(stage))},
                         {"detail", std::string(detail)}});
  os::log_debug(kComponent, name_of(host) + ": " + std::string(stage_name(stage)) +
                                (detail.empty() ? "" : ": " + std::string(detail)));
}

// --- what agents say
// ---------------------------------------------------------------------------------

void Supervisor::on_frame(int host, Frame frame) {
  const bool knows_ranks = hosts_[host].hello && streams_;
  if (!knows_ranks && frame.type != FrameType::kHello && frame.type != FrameType::kFailure &&
      frame.type != FrameType::kLog && frame.type != FrameType::kGoodbye) {
    return protocol_error(host, make_error(ErrorCode::kFailed, "the agent speaks out of turn"));
  }
  switch (frame.type) {
    case FrameType::kHello:
      return on_hello(host, frame.payload);
    case FrameType::kProbeResult:
      return on_probe_result(host, frame.payload);
    case FrameType::kReady:
      return feed(HostReady{host});
    case FrameType::kStarted:
      return on_started(host, frame.payload);
    case FrameType::kOutput:
      return check(host, streams_->output(host, frame.payload));
    case FrameType::kOutputEnd:
      return check(host, streams_->output_end(host, frame.payload));
    case FrameType::kInputAck:
      return check(host, streams_->input_delivered(frame.payload));
    case FrameType::kExit:
      return on_exit(host, frame.payload);
    case FrameType::kFailure:
      return on_agent_failure(host, frame.payload);
    case FrameType::kSuspend:
      return on_suspended(host);
    case FrameType::kGoodbye:
      return on_goodbye(host, frame.payload);
    case FrameType::kLog: {
      const auto line = decode_log_line(frame.payload);
      if (!line) return protocol_error(host, line.error());
      const int level = std::clamp(line->level, 0, 4);
      return os::log(static_cast<os::LogLevel>(level), name_of(host), line->message);
    }
    default:
      return protocol_error(
          host, make_error(ErrorCode::kFailed,
                           "unexpected frame " + std::to_string(static_cast<int>(frame.type))));
  }
}

void Supervisor::check(int host, const Status& status) {
  if (!status) protocol_error(host, status.error());
}

void Supervisor::on_hello(int host, const std::string& payload) {
  auto hello = decode_hello(payload);
  if (!hello) return protocol_error(host, hello.error());
  HostRun& run = hosts_[host];
  run.clock_offset = Milliseconds((wall_clock_ns() - hello->clock_ns) / 1'000'000);
  run.stage = Stage::kAgent;
  run.hello = std::move(*hello);
  timings_.mark("agent on " + name_of(host));
  if (spec_.runtime == RuntimeKind::kHora && !run.hello->have_bundle &&
      !installation_.bundle_hash.empty()) {
    if (!bundle_frames_) {
      auto frames = bundle_frames(installation_);
      if (!frames) return launch_failed(failure::kShip, frames.error());
      bundle_frames_ = *frames;
    }
    run.stage = Stage::kShip;
    run.shipped_bytes += bundle_frames_->size();
    run.link->send_shared(bundle_frames_);
  }
  events_.emit("agent", {{"host", name_of(host)},
                         {"hostname", run.hello->hostname},
                         {"pid", run.hello->pid},
                         {"shipped_bytes", static_cast<std::int64_t>(run.shipped_bytes)}});
  os::log_info(kComponent, name_of(host) + ": agent ready, shipped " +
                               std::to_string(run.shipped_bytes) + " bytes of runtime");
  feed(HostGreeted{host});
}

void Supervisor::on_started(int host, const std::string& payload) {
  const auto started = decode_started(payload);
  if (!started) return protocol_error(host, started.error());
  timings_.mark("ranks started on " + name_of(host));
  for (const auto& [rank, pid] : started->pids) {
    events_.emit("rank_start",
                 {{"rank", std::int64_t{rank}}, {"host", name_of(host)}, {"pid", pid}});
  }
}

void Supervisor::on_exit(int host, const std::string& payload) {
  auto exit = decode_rank_exit(payload);
  if (!exit) return protocol_error(host, exit.error());
  if (exit->rank < 0 || exit->rank >= plan_.world_size) {
    return protocol_error(host, make_error(ErrorCode::kFailed, "exit of an unknown rank"));
  }
  streams_->rank_ended(exit->rank);
  events_.emit("rank_exit", {{"rank", std::int64_t{exit->rank}},
                             {"host", name_of(host)},
                             {"exit_code", std::int64_t{exit_code_of(*exit)}},
                             {"signal", std::int64_t{exit->signal}},
                             {"terminated", exit->terminated_by_us},
                             {"max_rss_bytes", exit->max_rss_bytes},
                             {"user_time_us", exit->user_time_us},
                             {"system_time_us", exit->system_time_us}});
  os::log_debug(kComponent, "rank " + std::to_string(exit->rank) + " ended with code " +
                                std::to_string(exit_code_of(*exit)));
  feed(RankEnded{host, std::move(*exit), hosts_[host].clock_offset});
}

void Supervisor::on_agent_failure(int host, const std::string& payload) {
  auto failure = decode_failure(payload);
  if (!failure) return protocol_error(host, failure.error());
  feed(HostFailed{host, std::move(*failure)});
}

// The ranks are gone; the agent itself is when its stream ends, and not before that is the host
// left as it was found.
void Supervisor::on_goodbye(int host, const std::string& payload) {
  auto goodbye = decode_goodbye(payload);
  if (!goodbye) return protocol_error(host, goodbye.error());
  hosts_[host].goodbye = std::move(*goodbye);
  loop_->call_after(kLeavePatience, [this, host] {
    if (hosts_[host].link && hosts_[host].link->is_open()) on_link_end(host, {});
  });
}

void Supervisor::on_link_end(int host, std::string detail) {
  if (hosts_[host].goodbye) return feed(HostFinished{host, *hosts_[host].goodbye});
  if (!hosts_[host].hello) {
    return feed(HostFailed{host, {std::string(failure::kAgent), std::move(detail), ""}});
  }
  feed(HostLost{host, std::move(detail), hosts_[host].link->last_heard()});
}

void Supervisor::protocol_error(int host, const Error& error) {
  feed(HostFailed{host, {std::string(failure::kProtocol), error.message, ""}});
}

// --- the state machine's hands
// -----------------------------------------------------------------------

void Supervisor::feed(const Event& event) {
  const bool was_ending = state_->ending();
  std::vector<std::string> waiting;
  if (std::holds_alternative<ClockTick>(event) && !was_ending) {
    for (const int host : state_->waiting_for()) {
      const HostRun& run = hosts_[host];
      waiting.push_back(name_of(host) + " (" + std::string(stage_name(run.stage)) +
                        (run.stage_detail.empty() ? ")" : ": " + run.stage_detail + ")"));
    }
  }
  const auto actions = state_->step(event, os::Clock::now());
  if (!was_ending && state_->ending()) missing_at_timeout_ = std::move(waiting);
  for (const Action& action : actions) perform(action);
  if (!state_->done()) arm_deadline();
}

void Supervisor::perform(const Action& action) {
  if (std::holds_alternative<PrepareAll>(action)) {
    prepare_all();
  } else if (std::holds_alternative<StartAll>(action)) {
    start_all();
  } else if (const auto* terminate = std::get_if<TerminateHost>(&action)) {
    if (hosts_[terminate->host].link) {
      hosts_[terminate->host].link->send(
          FrameType::kTerminate, u32_payload(static_cast<std::uint32_t>(terminate->grace.count())));
    }
  } else if (const auto* drop = std::get_if<DropHost>(&action)) {
    if (hosts_[drop->host].link) hosts_[drop->host].link->close();
  } else if (std::holds_alternative<Finish>(action)) {
    finish();
  }
}

void Supervisor::prepare_all() {
  timings_.mark("all agents answered");
  if (!open_hosts_.empty()) {
    if (auto counted = count_gpu_slots(); !counted) {
      return launch_failed(failure::kUsage, counted.error());
    }
  }
  const auto probes = candidate_probes(host_networks(), spec_.network_interfaces);
  hosts_to_probe_ = 0;
  for (std::size_t i = 0; i < hosts_.size() && i < probes.size(); ++i) {
    if (probes[i].targets.empty()) continue;
    hosts_[i].link->send(FrameType::kProbe, encode(probes[i]));
    ++hosts_to_probe_;
  }
  if (hosts_to_probe_ == 0) send_orders();
}

void Supervisor::on_probe_result(int host, const std::string& payload) {
  auto result = decode_probe_result(payload);
  if (!result) return protocol_error(host, result.error());
  if (hosts_to_probe_ == 0 || hosts_[host].probe) return;
  hosts_[host].probe = std::move(*result);
  if (--hosts_to_probe_ > 0) return;
  timings_.mark("network probed");
  if (!state_->ending()) send_orders();
}

std::vector<HostNetwork> Supervisor::host_networks() const {
  std::vector<HostNetwork> networks;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    const Hello& hello = *hosts_[i].hello;
    HostNetwork network;
    network.name = name_of(static_cast<int>(i));
    network.boot_id = hello.boot_id;
    network.interfaces = hello.interfaces;
    network.probe_port = hello.probe_port;
    network.probe_nonce = hello.probe_nonce;
    if (hosts_[i].remote) read_ssh_connection(hello.ssh_connection, network);
    networks.push_back(std::move(network));
  }
  return networks;
}

HostNetwork Supervisor::own_network() const {
  HostNetwork own;
  own.name = "the launcher's machine";
  own.boot_id = machine_id();
  own.interfaces = host_interfaces();
  return own;
}

void Supervisor::send_orders() {
  std::vector<ProbeResult> answers;
  for (const HostRun& run : hosts_) answers.push_back(run.probe.value_or(ProbeResult{}));
  auto choice = choose_network(host_networks(), own_network(), spec_.network_interfaces, answers);
  if (auto* failure = std::get_if<Failure>(&choice)) {
    return feed(LaunchFailed{std::move(*failure), kExitLauncher});
  }
  const auto& network = std::get<NetworkChoice>(choice);
  for (std::size_t i = 0; i < network.hosts.size(); ++i) {
    events_.emit("network", {{"host", name_of(static_cast<int>(i))},
                             {"interface", network.hosts[i].interface},
                             {"address", network.hosts[i].address},
                             {"reason", network.hosts[i].reason}});
    os::log_info(kComponent, name_of(static_cast<int>(i)) + ": " + network.hosts[i].interface +
                                 " " + network.hosts[i].address + ": " + network.hosts[i].reason);
  }
  const bool by_address = spec_.runtime == RuntimeKind::kHost;
  auto meeting = JobRendezvous::start(
      *loop_, plan_, network.listen_addresses,
      job_access(identity_.token, by_address ? host_networks() : std::vector<HostNetwork>()));
  if (!meeting) return launch_failed(failure::kRendezvous, meeting.error());
  rendezvous_ = std::move(*meeting);
  identity_.rendezvous_port = rendezvous_->port();
  os::log_info(kComponent, "rendezvous on port " + std::to_string(identity_.rendezvous_port));
  if (auto shipped = send_ship_files(); !shipped) {
    return launch_failed(failure::kShip, shipped.error());
  }
  identity_.master_port = hosts_[0].hello->free_port;
  std::vector<bool> same_machine;
  for (const HostRun& run : hosts_) same_machine.push_back(!run.remote);
  const auto orders =
      make_orders(spec_, plan_, network.hosts, same_machine, identity_, environment_);
  for (std::size_t i = 0; i < orders.size(); ++i) {
    hosts_[i].link->send(FrameType::kOrder, encode(orders[i]));
  }
}

Status Supervisor::send_ship_files() {
  for (const std::string& path : spec_.ship_files) {
    auto frames = ship_file_frames(path);
    if (!frames) return std::move(frames).error();
    const auto shared = std::make_shared<const std::string>(std::move(*frames));
    for (HostRun& run : hosts_) {
      run.link->send_shared(shared);
      run.shipped_bytes += shared->size();
    }
  }
  return Ok{};
}

void Supervisor::start_all() {
  timings_.mark("all hosts ready");
  for (HostRun& run : hosts_) run.link->send(FrameType::kStart);
  streams_->start_input();
}

void Supervisor::launch_failed(std::string_view code, const Error& error) {
  feed(LaunchFailed{{std::string(code), error.message, ""}, exit_code_of_failure(code)});
}

void Supervisor::finish() {
  timings_.mark("all ranks ended");
  flushing_ = true;
  // By way of the loop: the end may come before it runs.
  if (!streams_) return loop_->post([this] { loop_->stop(); });
  streams_->finish([this] { loop_->stop(); });
}

// --- time, signals, streams ----------------------------------------------------------------------

void Supervisor::arm_deadline() {
  if (deadline_timer_ != 0) loop_->cancel(deadline_timer_);
  deadline_timer_ = 0;
  const auto deadline = state_->next_deadline();
  if (!deadline) return;
  deadline_timer_ = loop_->call_at(*deadline, [this] {
    deadline_timer_ = 0;
    feed(ClockTick{});
  });
}

void Supervisor::beat() {
  const auto now = os::Clock::now();
  for (int host = 0; host < static_cast<int>(hosts_.size()); ++host) {
    HostRun& run = hosts_[host];
    if (!run.hello || !run.link->is_open()) continue;
    if (now - run.link->last_heard() > spec_.lease) {
      run.link->close();
      const auto silence =
          std::chrono::duration_cast<std::chrono::seconds>(now - run.link->last_heard());
      feed(HostLost{host, "no sign of life for " + std::to_string(silence.count()) + " s",
                    run.link->last_heard()});
    } else {
      run.link->send(FrameType::kHeartbeat);
    }
  }
  if (!state_->done()) loop_->call_after(spec_.lease / 4, [this] { beat(); });
}

void Supervisor::on_signal(int signal) {
  switch (signal) {
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
    case SIGQUIT:
      if (flushing_) return loop_->stop();  // the reader does not read: do not wait for it
      return feed(UserSignal{signal});
    case SIGUSR1:
    case SIGUSR2:
      for (HostRun& run : hosts_) {
        if (run.link)
          run.link->send(FrameType::kSignal, u32_payload(static_cast<std::uint32_t>(signal)));
      }
      return;
    case SIGTSTP:
      return suspend();
    default:
      return;  // CONT: handled where we stopped, or nothing to do
  }
}

// Ctrl-Z: first the ranks stop, on all hosts, then we do.
void Supervisor::suspend() {
  if (suspend_timer_ != 0) return;
  hosts_to_suspend_ = 0;
  for (HostRun& run : hosts_) {
    if (!run.hello || !run.link->is_open()) continue;
    run.link->send(FrameType::kSuspend);
    ++hosts_to_suspend_;
  }
  suspend_timer_ = loop_->call_after(kSuspendPatience, [this] { stop_myself(); });
  if (hosts_to_suspend_ == 0) stop_myself();
}

void Supervisor::on_suspended(int) {
  if (suspend_timer_ != 0 && --hosts_to_suspend_ == 0) stop_myself();
}

void Supervisor::stop_myself() {
  loop_->cancel(suspend_timer_);
  suspend_timer_ = 0;
  ::raise(SIGSTOP);
  // ... and here the shell's fg or bg continues us.
  for (HostRun& run : hosts_) {
    if (!run.hello || !run.link->is_open()) continue;
    run.link->forgive_silence();
    run.link->send(FrameType::kResume);
  }
  if (streams_) streams_->resume_input();
}

void Supervisor::on_stdout_broken(int errnum) {
  if (errnum == EPIPE) return feed(OutputClosed{});
  launch_failed(failure::kOutput, errno_error(errnum, "writing to standard output"));
}

std::string Supervisor::name_of(int host) const { return plan_.hosts[host].host.name; }

void Supervisor::print_outcome() const {
  const JobOutcome& outcome = state_->outcome();
  const std::string text = describe_outcome(outcome, plan_.hosts, missing_at_timeout_);
  if (events_.enabled()) {
    const std::string code = outcome.cause ? outcome.cause->failure.code : std::string();
    events_.emit("job_end", {{"job_id", identity_.job_id},
                             {"exit_code", std::int64_t{outcome.exit_code()}},
                             {"code", code},
                             {"message", text}});
  } else if (!text.empty()) {
    std::fprintf(stderr, "horarun: %s", text.c_str());
  }
}

}  // namespace hora::launcher
