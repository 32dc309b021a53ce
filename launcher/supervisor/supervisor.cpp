// SPDX-License-Identifier: Apache-2.0
#include "launcher/supervisor/supervisor.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "launcher/agent/host_facts.h"
#include "launcher/failures/exit_code.h"
#include "launcher/failures/failure_code.h"
#include "launcher/job/locality.h"
#include "rendezvous/os/log.h"
#include "rendezvous/os/random.h"
#include "rendezvous/tls/tls_stream.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kComponent = "horarun";
// Connections to the rendezvous: of ranks, and of strangers who would keep them out.
constexpr std::size_t kMeetingFiles = 8'192;
constexpr Milliseconds kLeavePatience{1'000};  // from an agent's goodbye to its end

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
      packed_(pack_ship_files()),
      display_(timings_.start(), !spec_.json && !spec_.verbose,
               [this](std::string text) { say(std::move(text)); }),
      events_(spec_.json, !spec_.report_file.empty(),
              [this](std::string line) { say(std::move(line)); }) {}

// Links go before the transports that pump them, everything before the loop.
Supervisor::~Supervisor() {
  hosts_.clear();
  connector_.reset();
  os::set_log_sink({});
}

Result<int> Supervisor::run() {
  HORA_TRY(make_plan());
  HORA_TRY(set_up());
  if (spec_.elastic) {
    start_elastic();
  } else {
    connect_hosts();
  }
  next_beat_ = os::Clock::now();
  beat();
  arm_deadline();
  HORA_TRY(loop_->run());
  return exit_code_;
}

Status Supervisor::set_up() {
  auto loop = os::EventLoop::create();
  if (!loop) return std::move(loop).error();
  loop_ = std::move(*loop);
  auto signals = Signals::watch(*loop_, [this](int signal) { on_signal(signal); });
  if (!signals) return std::move(signals).error();
  signals_ = std::move(*signals);
  console_.emplace(*loop_, STDERR_FILENO);  // behind them: its thread must not take any
  os::set_log_sink([this](std::string line) { console_->say(std::move(line)); });
  make_autopsy();
  identity_.job_id = os::random_token();
  identity_.token = os::random_token();
  if (spec_.rendezvous_tls) {
    auto side = tls::make_server_side("hora " + identity_.job_id);
    if (!side) return std::move(side).error().with_context("--rendezvous-tls");
    accept_stream_ = std::move(side->accept);
    identity_.tls_fingerprint = std::move(side->fingerprint);
  }

  JobState::Options options;
  options.hosts = static_cast<int>(plan_.hosts.size());
  options.grace = spec_.grace;
  options.start_timeout = spec_.start_timeout;
  options.timeout = spec_.timeout;
  options.elastic = spec_.elastic.has_value();
  state_.emplace(options, timings_.start());

  if (open_hosts_.empty()) adopt(std::move(plan_));
  return watch_starter();
}

Status Supervisor::make_plan() {
  if (spec_.elastic) return Ok{};  // an epoch at a time
  std::vector<Host> hosts = settle_named_slots(spec_);
  if (!has_open_slots(hosts)) {
    auto plan = plan_job(hosts, spec_.num_proc);
    if (!plan) return std::move(plan).error();
    plan_ = std::move(*plan);
    return plan_chaos();
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
                           [this](int fd, int errnum) { on_console_broken(fd, errnum); }});
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
  HORA_TRY(plan_chaos());
  return streams_->open();
}

// --- connecting ----------------------------------------------------------------------------------

void Supervisor::connect_hosts() {
  std::vector<Host> named;
  for (const HostPlan& host : plan_.hosts) named.push_back(host.host);
  std::vector<bool> local(named.size(), false);
  if (spec_.local_directly) local = find_local_hosts(named);

  hosts_.resize(named.size());
  std::vector<std::string> names;
  for (const Host& host : named) names.push_back(host.name);
  display_.begin(*loop_, std::move(names));
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
    raise_descriptor_limit(64 + 4 * hosts_.size() + files + kMeetingFiles);
    return streams_ ? streams_->open() : Status(Ok{});
  };
  // A transport knows why it did not come further: its word is to be there before time is up.
  const auto deadline = timings_.start() + spec_.start_timeout -
                        std::min<Milliseconds>(Milliseconds(250), spec_.start_timeout / 10);
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
    if (!connect_host(i, deadline)) return;
  }
  if (!prepared) {
    if (auto ready = prepare(); !ready) return launch_failed(failure::kUsage, ready.error());
  }
  timings_.mark("connections begun");
}

bool Supervisor::connect_host(int host, os::Clock::time_point deadline) {
  HostRun& run = hosts_[host];
  auto stream = connector_->connect(plan_.hosts[host].host, host, !run.remote, deadline);
  if (!stream) {
    const auto code = run.remote ? failure::kConnect : failure::kAgent;
    const std::string& what = stream.error().message;
    feed(HostFailed{host, {std::string(code), what, failure::open_files_advice(what, "here")}});
    return false;
  }
  run.link = std::make_unique<HostLink>(
      *loop_, std::move(*stream),
      HostLink::Handlers{
          [this, host](AgentMessage message) {
            std::visit([&](auto& each) { on(host, std::move(each)); }, message);
          },
          [this, host](std::string what) { on_violation(host, std::move(what)); },
          [this, host](std::string detail) { on_link_end(host, std::move(detail)); }});
  if (auto opened = run.link->open(); !opened) {
    feed(HostFailed{host, {std::string(failure::kInternal), opened.error().message, ""}});
    return false;
  }
  return true;
}

void Supervisor::on_stage(int host, Stage stage, std::string_view detail) {
  if (host >= static_cast<int>(hosts_.size())) return;  // not needed after all
  reach(host, stage, detail);
}

void Supervisor::reach(int host, Stage stage, std::string_view detail) {
  display_.reach(host, stage, detail);
  events_.emit("stage", {{"host", name_of(host)},
                         {"stage", std::string(stage_name(stage))},
                         {"detail", std::string(detail)}});
  os::log_debug(kComponent, name_of(host) + ": " + std::string(stage_name(stage)) +
                                (detail.empty() ? "" : ": " + std::string(detail)));
}

// --- what agents say -----------------------------------------------------------------------------

void Supervisor::on(int host, Hello hello) {
  HostRun& run = hosts_[host];
  run.clock_offset = Milliseconds((wall_clock_ns() - hello.clock_ns) / 1'000'000);
  run.hello = std::move(hello);
  display_.reach(host, Stage::kAgent);
  timings_.mark("agent on " + name_of(host));
  if (spec_.runtime == RuntimeKind::kHora && !run.hello->have_bundle &&
      !installation_.bundle_hash.empty()) {
    if (!bundle_frames_) {
      auto frames = bundle_frames(installation_);
      if (!frames) return launch_failed(failure::kShip, frames.error());
      bundle_frames_ = *frames;
    }
    reach(host, Stage::kShip, "the runtime");
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

void Supervisor::on(int host, AgentReady) {
  reach(host, Stage::kReady);
  feed(HostReady{host});
}

void Supervisor::on(int host, const Started& started) {
  reach(host, Stage::kRanks);
  for (const std::string& note : started.notes) {
    events_.emit("placement", {{"host", name_of(host)}, {"note", note}});
    tell_placement(name_of(host) + ": " + note);
  }
  if (!elastic_ && --hosts_to_start_ == 0) {
    display_.ranks_run();
    watch_for_stall();
    begin_chaos();
  }
  timings_.mark("ranks started on " + name_of(host));
  for (const auto& [rank, pid] : started.pids) {
    events_.emit("rank_start",
                 {{"rank", std::int64_t{rank}}, {"host", name_of(host)}, {"pid", pid}});
  }
}

// Who asks for a binding is shown it.
void Supervisor::tell_placement(const std::string& note) {
  const bool asked = spec_.bind == "core" || spec_.bind == "numa" || !spec_.gpus_per_rank.empty();
  if (!asked || spec_.verbose || events_.enabled()) return os::log_info(kComponent, note);
  tell(note + "\n");
}

void Supervisor::on(int host, const RankOutput& output) {
  hang_report_->heard();
  display_.hide();
  streams_->output(host, output);
}

void Supervisor::on(int host, const RankOutputEnd& end) { streams_->output_end(host, end); }
void Supervisor::on(int, const InputTaken& taken) { streams_->input_delivered(taken.bytes); }
void Supervisor::on(int host, StackReport report) {
  hang_report_->on_stacks(host, std::move(report));
}

void Supervisor::on(int host, const LogLine& line) {
  os::log(static_cast<os::LogLevel>(line.level), name_of(host), line.message);
}

// Of ranks that use the runtime: how far they are in meeting each other. Later it says that they
// work.
void Supervisor::on(int host, const RankProgress& progress) {
  hang_report_->heard();
  if (elastic_) return;  // its hosts come and go: they have no stages
  const std::size_t ranks = plan_.hosts[host].slots.size();
  const Stage stage = progress.worked >= ranks   ? Stage::kWork
                      : progress.joined >= ranks ? Stage::kFirstCollective
                      : progress.meeting > 0     ? Stage::kRendezvous
                                                 : Stage::kRanks;
  HostRun& run = hosts_[host];
  if (stage > run.progress) reach(host, run.progress = stage);
}

void Supervisor::on(int host, RankExit exit) {
  streams_->rank_ended(exit.rank);
  events_.emit("rank_exit", {{"rank", std::int64_t{exit.rank}},
                             {"host", name_of(host)},
                             {"exit_code", std::int64_t{exit_code_of(exit)}},
                             {"signal", std::int64_t{exit.signal}},
                             {"terminated", exit.terminated_by_us},
                             {"max_rss_bytes", exit.max_rss_bytes},
                             {"user_time_us", exit.user_time_us},
                             {"system_time_us", exit.system_time_us},
                             {"last_operation", exit.last_operation}});
  if (!exit.lost_record.empty()) {
    lose({"rank " + std::to_string(exit.rank) + " on " + name_of(host), exit.lost_record,
          std::string(failure::kOutput)});
  }
  os::log_debug(kComponent, "rank " + std::to_string(exit.rank) + " ended with code " +
                                std::to_string(exit_code_of(exit)));
  feed(RankEnded{host, std::move(exit), hosts_[host].clock_offset});
}

void Supervisor::on(int host, GpuFault fault) {
  gpu_faults_.push_back({name_of(host), std::move(fault)});
  const HostGpuFault& seen = gpu_faults_.back();
  events_.emit("gpu_fault", {{"host", seen.host},
                             {"device", seen.fault.device},
                             {"xid", std::int64_t{seen.fault.xid}},
                             {"rank", std::int64_t{seen.fault.rank}},
                             {"pid", seen.fault.pid},
                             {"message", gpu_fault_text(seen)}});
  tell(gpu_fault_text(seen) + "\n");
}

void Supervisor::on(int host, Failure failure) { feed(HostFailed{host, std::move(failure)}); }

// The ranks are gone; the agent itself is when its stream ends, and not before that is the host
// left as it was found.
void Supervisor::on(int host, Goodbye goodbye) {
  hosts_[host].goodbye = std::move(goodbye);
  loop_->call_after(kLeavePatience, [this, host] {
    if (hosts_[host].link && hosts_[host].link->is_open()) on_link_end(host, {});
  });
}

void Supervisor::on_link_end(int host, std::string detail) {
  if (hosts_[host].goodbye) {
    const auto& exits = state_->outcome().exits;
    int missing = 0;
    for (const Slot& slot : plan_.hosts[host].slots) missing += exits.count(slot.rank) == 0;
    return feed(HostFinished{host, *hosts_[host].goodbye, missing});
  }
  if (!hosts_[host].hello) {
    return feed(HostFailed{host, {std::string(failure::kAgent), std::move(detail), ""}});
  }
  feed(HostLost{host, std::move(detail), hosts_[host].link->silence().last_heard()});
}

void Supervisor::on_violation(int host, std::string what) {
  feed(HostFailed{host,
                  {std::string(failure::kProtocol), "its agent broke the protocol: " + what, ""}});
}

}  // namespace hora::launcher
