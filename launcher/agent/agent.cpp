#include "launcher/agent/agent.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>

#include "launcher/agent/host_facts.h"
#include "launcher/agent/host_job.h"
#include "launcher/agent/launcher_link.h"
#include "launcher/agent/network_cut.h"
#include "launcher/agent/order_check.h"
#include "launcher/agent/prober.h"
#include "launcher/agent/stack_collector.h"
#include "launcher/agent/staging.h"
#include "launcher/failures/failure_code.h"
#include "launcher/process/process_table.h"
#include "launcher/protocol/agent_limits.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

namespace {

using os::Clock;
using Milliseconds = std::chrono::milliseconds;

// Nothing runs before the order, and other hosts may need long to connect and to receive files; but
// a launcher that lives says so every 2.5 s at least.
constexpr Milliseconds kLeaseBeforeOrder{30'000};
constexpr Milliseconds kHeartbeatBeforeOrder{2'500};
constexpr Milliseconds kDefaultGrace{5'000};
constexpr Milliseconds kMarkRenewal{3'600'000};  // cache_directory.h: kAbandonedAfterS
constexpr Milliseconds kProgressSoon{50};        // until all ranks have come through a collective
constexpr Milliseconds kProgressLater{1'000};
constexpr int kSoonLooks = 1'200;                  // for a minute
constexpr Milliseconds kFarewellPatience{10'000};  // for a launcher that does not read the goodbye

class Agent {
 public:
  Agent(const AgentOptions& options, ShimState& share, os::Fd shim_alive)
      : options_(options), share_(share), shim_alive_(std::move(shim_alive)) {}

  int run();

 private:
  Status open();
  Status watch_signals();
  Status watch_shim();
  void greet();

  void on_frame(Frame frame);
  void on_delivery(const Frame& frame);
  void on_probe(std::string_view payload);
  void on_order(std::string_view payload);
  bool prepare_cuts();
  void on_cut(std::size_t index, bool on);
  void serve_pmi();
  void on_start();
  void on_dump(Milliseconds patience);
  void watch_progress();
  void on_link_end(const std::string& why);
  void on_signals();
  void on_heartbeat();
  void renew_marks();
  void await_heartbeat(Milliseconds pause);

  void fail(Failure failure);
  void fail_protocol(std::string what);
  void end_job(Milliseconds grace);
  void say_goodbye(Goodbye goodbye);
  void leave();
  void warn(std::string message);

  Milliseconds grace() const { return job_ ? Milliseconds(job_->order().grace_ms) : kDefaultGrace; }
  Milliseconds lease() const {
    return job_ ? Milliseconds(job_->order().lease_ms) : kLeaseBeforeOrder;
  }

  const AgentOptions& options_;
  ShimState& share_;
  os::Fd shim_alive_;
  std::unique_ptr<os::EventLoop> loop_;
  std::unique_ptr<LauncherLink> link_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<ProbeListener> probe_listener_;
  std::unique_ptr<Prober> prober_;
  std::unique_ptr<StackCollector> stacks_;
  std::unique_ptr<HostJob> job_;
  std::optional<NetworkCuts> cuts_;
  os::Fd signals_;
  ReservedPort reserved_port_;
  FlightRecords::Progress progress_;  // as last told
  int progress_looks_ = 0;
  os::EventLoop::TimerId heartbeat_timer_ = 0;
  Clock::time_point next_heartbeat_;
  std::string host_;
  bool suspended_ = false;
  bool leaving_ = false;
  bool done_ = false;
};

int Agent::run() {
  auto loop = os::EventLoop::create();
  if (!loop) {
    std::fprintf(stderr, "hora-agent: %s\n", loop.error().message.c_str());
    return 125;
  }
  loop_ = std::move(*loop);
  host_ = host_name();
  link_ = std::make_unique<LauncherLink>(*loop_, STDIN_FILENO, STDOUT_FILENO);
  const Staging::Source source{options_.cache_directory, options_.own_sha256, options_.local_bundle,
                               options_.cleans_cache};
  staging_ = std::make_unique<Staging>(host_, source, share_);
  if (const Status opened = open(); !opened) {
    // The stream may still carry the reason; the exit code tells it in any case.
    const Failure failure{std::string(failure::kAgent),
                          opened.error().message + " (host " + host_ + ")", ""};
    const std::string text =
        std::string(kAgentMagic) + encode_frame(FrameType::kFailure, encode(fit(failure)));
    [[maybe_unused]] ssize_t wrote = ::write(STDOUT_FILENO, text.data(), text.size());
    std::fprintf(stderr, "hora-agent: %s\n", opened.error().message.c_str());
    share_.finished = 1;
    return 125;
  }
  greet();
  // The launcher may have gone while it was being greeted; a loop that runs later knows no stop.
  if (!done_) {
    if (const Status ran = loop_->run(); !ran) return 125;  // the shim cleans up
  }
  share_.finished = 1;
  return 0;
}

Status Agent::open() {
  HORA_TRY(watch_signals());
  HORA_TRY(watch_shim());
  HORA_TRY(link_->open({[this](Frame frame) { on_frame(std::move(frame)); },
                        [this](std::string why) { on_link_end(why); }}));
  await_heartbeat(kHeartbeatBeforeOrder);
  loop_->call_after(kMarkRenewal, [this] { renew_marks(); });
  return Ok{};
}

Status Agent::watch_signals() {
  sigset_t watched;
  ::sigemptyset(&watched);
  for (int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT}) ::sigaddset(&watched, signal);
  signals_ = os::Fd(::signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_.valid()) return errno_error(errno, "watching signals");
  return loop_->watch(signals_.get(), EPOLLIN, [this](std::uint32_t) { on_signals(); });
}

Status Agent::watch_shim() {
  return loop_->watch(shim_alive_.get(), EPOLLIN, [this](std::uint32_t) {
    loop_->unwatch(shim_alive_.get());
    fail({std::string(failure::kAgent), "the agent's shim on host " + host_ + " was killed", ""});
  });
}

void Agent::greet() {
  Hello hello = describe_machine();
  hello.version = HORA_VERSION;
  hello.pid = ::getpid();
  hello.have_bundle = staging_->have_bundle(options_.bundle_hash);
  hello.cache_directory = options_.cache_directory;
  if (const char* connection = ::getenv("SSH_CONNECTION")) hello.ssh_connection = connection;
  if (options_.report_sha) {
    hello.agent_sha256 = options_.own_sha256;
    if (hello.agent_sha256.empty()) {
      if (auto sha = sha256_of_file("/proc/self/exe")) hello.agent_sha256 = std::move(*sha);
    }
  }
  if (options_.probe) {
    if (auto listener = ProbeListener::create(*loop_)) {
      probe_listener_ = std::move(*listener);
      hello.probe_port = probe_listener_->port();
      hello.probe_nonce = probe_listener_->nonce();
    }
  }
  reserved_port_ = reserve_port();
  hello.free_port = reserved_port_.port;
  hello.clock_ns = wall_clock_ns();
  link_->send(FrameType::kHello, encode(fit(std::move(hello))));
}

// --- frames --------------------------------------------------------------------------------------

void Agent::on_frame(Frame frame) {
  if (leaving_) return;
  std::string_view payload = frame.payload;
  const auto number = [&payload] { return read_u32(payload); };
  switch (frame.type) {
    case FrameType::kHeartbeat:
      // The lease is not known before the order: answer at the launcher's own pace.
      if (!job_) link_->send(FrameType::kHeartbeat);
      return;
    case FrameType::kBundle:
    case FrameType::kShipFile:
    case FrameType::kData:
    case FrameType::kDataEnd:
      return on_delivery(frame);
    case FrameType::kProbe:
      return on_probe(payload);
    case FrameType::kOrder:
      return on_order(payload);
    case FrameType::kStart:
      return on_start();
    case FrameType::kTerminate:
      if (const auto grace_ms = number()) return end_job(Milliseconds(*grace_ms));
      break;
    case FrameType::kEndRank:
      if (const auto rank = number()) {
        const auto grace_ms = number();
        if (!grace_ms) break;
        if (job_) job_->end_rank(static_cast<int>(*rank), Milliseconds(*grace_ms));
        return;
      }
      break;
    case FrameType::kSignal:
      if (const auto signal = number(); signal && *signal >= 1 && *signal <= 64) {
        if (job_) job_->signal_ranks(static_cast<int>(*signal));
        return;
      }
      break;
    case FrameType::kSignalRank:
      if (const auto rank = number()) {
        const auto signal = number();
        if (!signal || *signal < 1 || *signal > 64) break;
        if (job_) job_->signal_rank(static_cast<int>(*rank), static_cast<int>(*signal));
        return;
      }
      break;
    case FrameType::kCut:
      if (const auto index = number()) {
        const auto on = number();
        if (!on) break;
        on_cut(*index, *on != 0);
        return;
      }
      break;
    case FrameType::kSuspend:
      suspended_ = true;
      if (job_) job_->suspend();
      link_->send(FrameType::kSuspend);  // done: the launcher may stop now
      return;
    case FrameType::kResume:
      suspended_ = false;
      if (job_) job_->resume();
      return;
    case FrameType::kDump:
      if (const auto patience_ms = number()) return on_dump(Milliseconds(*patience_ms));
      break;
    case FrameType::kOutputAck:
      if (const auto bytes = number()) {
        if (job_) job_->output().acknowledge(*bytes);
        return;
      }
      break;
    case FrameType::kInput:
      if (const auto rank = number()) {
        if (job_) job_->input().write(static_cast<int>(*rank), payload);
        return;
      }
      break;
    case FrameType::kInputEnd:
      if (const auto rank = number()) {
        if (job_) job_->input().end(static_cast<int>(*rank));
        return;
      }
      break;
    default:
      return fail_protocol("a frame of type " + std::to_string(static_cast<int>(frame.type)) +
                           ", which is unknown");
  }
  fail_protocol("a malformed frame of type " + std::to_string(static_cast<int>(frame.type)));
}

void Agent::on_delivery(const Frame& frame) {
  if (job_) return fail_protocol("a delivery behind the order");
  std::optional<Failure> failure;
  switch (frame.type) {
    case FrameType::kBundle:
      failure = staging_->on_bundle(frame.payload);
      break;
    case FrameType::kShipFile:
      failure = staging_->on_ship_file(frame.payload);
      break;
    case FrameType::kData:
      failure = staging_->on_data(frame.payload);
      break;
    default:
      failure = staging_->on_data_end();
      break;
  }
  if (failure) fail(std::move(*failure));
}

void Agent::on_probe(std::string_view payload) {
  const auto probe = decode_probe(payload);
  if (!probe) return fail_protocol(probe.error().message);
  if (prober_) return fail_protocol("a second probe before the first was answered");
  prober_ = std::make_unique<Prober>(*loop_, *probe, [this](ProbeResult result) {
    link_->send(FrameType::kProbeResult, encode(fit(std::move(result))));
    // It is still on the stack: destroyed by the next turn of the loop.
    loop_->post([finished = std::shared_ptr<Prober>(std::move(prober_))] {});
  });
  prober_->start();
}

void Agent::on_order(std::string_view payload) {
  if (job_) return fail_protocol("a second order");
  if (staging_->in_progress()) return fail_protocol("an order within a delivery");
  auto order = decode_host_order(payload);
  if (!order) return fail_protocol(order.error().message);
  if (const Status sound = check_order(*order); !sound) return fail_protocol(sound.error().message);
  probe_listener_.reset();
  if (order->ship_directory) {
    // Files came before; without any, the folder is made now.
    if (const auto directory = staging_->job_directory(); !directory) {
      return fail(
          {std::string(failure::kShip), directory.error().message + " (host " + host_ + ")", ""});
    }
  }
  JobPlace place;
  place.host = host_;
  place.bundle_root = staging_->bundle_root();
  place.job_directory = staging_->job_directory_if_any();
  place.mark = share_.mark;
  stacks_ = std::make_unique<StackCollector>(*loop_);
  place.stacks_place = stacks_->open();
  place.stacks_signal = StackCollector::signal_number();
  place.cgroup_word = place.mark.substr(place.mark.size() - 16);
  auto prepared = PreparedJob::prepare(std::move(*order), place);
  if (auto* failure = std::get_if<Failure>(&prepared)) return fail(std::move(*failure));
  auto& job = std::get<PreparedJob>(prepared);
  if (JobCgroup* cgroup = job.cgroup()) set_shared_text(share_.cgroup, cgroup->path());
  job_ = std::make_unique<HostJob>(*loop_, *link_, std::move(job), place.mark);
  const Status opened = job_->open([this](Goodbye goodbye) { say_goodbye(std::move(goodbye)); });
  if (!opened) {
    return fail(
        {std::string(failure::kAgent), opened.error().message + " (host " + host_ + ")", ""});
  }
  if (!prepare_cuts()) return;
  share_.patience_ms = static_cast<int>(grace().count()) + options_.shim_margin_ms;
  if (job_->order().pmi.empty()) {
    link_->send(FrameType::kReady);
  } else {
    serve_pmi();
  }
  on_heartbeat();
}

// Found out now, so that no rank is started for a trial that cannot take place.
bool Agent::prepare_cuts() {
  const HostOrder& order = job_->order();
  if (order.cuts.empty()) return true;
  const std::string_view mark(share_.mark);
  cuts_.emplace(order.cuts, std::string(mark.substr(mark.size() - 16)));
  const Status able = cuts_->try_out();
  if (able) return true;
  fail(
      {std::string(failure::kChaos),
       "host " + host_ + " cannot cut itself off from another: " + able.error().message,
       "it takes root on the first host of the pair (CAP_NET_ADMIN) and Linux 5.12 or later there; "
       "the pair may be named the other way round"});
  return false;
}

void Agent::on_cut(std::size_t index, bool on) {
  if (!cuts_) return;
  if (!on) return cuts_->heal(index);
  if (const Status done = cuts_->cut(index); !done) {
    warn("host " + host_ + " was not cut off: " + done.error().message);
  }
}

void Agent::serve_pmi() {
  const auto failed = [this](const std::string& what) {
    fail({std::string(failure::kPmi),
          "hora-" + job_->order().pmi + ", which serves PMI to the ranks: " + what,
          job_->started() || job_->order().pmi != "pmix"
              ? ""
              : "it needs the PMIx library of that host, libpmix.so.2: install it "
                "(Debian, Ubuntu: libpmix2), or name its folder in LD_LIBRARY_PATH"});
  };
  auto directory = staging_->job_directory();
  if (!directory) return failed(directory.error().message);
  const Status started = job_->serve_pmi(
      *directory, [this] { link_->send(FrameType::kReady); },
      [this](std::string note) { warn(std::move(note)); }, failed);
  if (!started) failed(started.error().message);
}

void Agent::on_start() {
  if (!job_ || job_->started()) return fail_protocol("a start without an order");
  job_->start();
  watch_progress();
}

// The launcher shows how far the ranks are, and takes work for a sign of life.
void Agent::watch_progress() {
  if (leaving_ || job_->living_ranks().empty()) return;
  const auto now = job_->flight_records().progress();
  if (now != progress_) {
    std::string payload;
    for (const int count : {now.meeting, now.joined, now.worked}) {
      append_u32(payload, static_cast<std::uint32_t>(count));
    }
    link_->send(FrameType::kProgress, payload);
  }
  progress_ = now;
  const bool all = now.worked == static_cast<int>(job_->order().ranks.size());
  const bool rare = all || ++progress_looks_ > kSoonLooks;  // they may never use the runtime
  loop_->call_after(rare ? kProgressLater : kProgressSoon, [this] { watch_progress(); });
}

void Agent::on_dump(Milliseconds patience) {
  if (!job_ || !stacks_) {
    link_->send(FrameType::kStacks, encode(StackReport{}));
    return;
  }
  std::vector<StackCollector::RankProcess> ranks;
  for (const auto& [rank, pid] : job_->living_ranks()) ranks.push_back({rank, pid});
  stacks_->collect(std::move(ranks), job_->flight_records(), patience, [this](StackReport report) {
    link_->send(FrameType::kStacks, encode(fit(std::move(report))));
  });
}

// --- life ----------------------------------------------------------------------------------------

void Agent::on_signals() {
  signalfd_siginfo info;
  bool child = false;
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGCHLD) {
      child = true;
    } else {
      warn("the agent on host " + host_ + " was told to end (signal " +
           std::to_string(info.ssi_signo) + ")");
      end_job(grace());
    }
  }
  if (child && job_) job_->on_child_ended();
}

void Agent::on_heartbeat() {
  if (leaving_ || link_->ended()) return;
  // Not now(): we may have been stopped ourselves, with heartbeats waiting.
  const auto now = loop_->polled_at();
  Silence& silence = link_->silence();
  const Milliseconds pause = job_ != nullptr ? lease() / 4 : kHeartbeatBeforeOrder;
  silence.look(next_heartbeat_, now, pause);
  await_heartbeat(pause);
  link_->send(FrameType::kHeartbeat);
  const Milliseconds limit = suspended_ ? Milliseconds(options_.suspended_lease_ms) : lease();
  if (silence.length(now) < limit) return;
  if (suspended_) {  // it may come back, and ask why
    const auto hours = std::chrono::duration_cast<std::chrono::hours>(limit).count();
    link_->send(FrameType::kFailure,
                encode(Failure{std::string(failure::kHostLost),
                               "host " + host_ + " ended its ranks: the job was suspended for " +
                                   std::to_string(hours) + " h, and nobody resumed it",
                               ""}));
  } else if (options_.launcher != 0 && standing_of(options_.launcher) == Standing::kAtWork) {
    return;
  }
  on_link_end("the launcher has been silent for longer than the lease");
}

void Agent::await_heartbeat(Milliseconds pause) {
  loop_->cancel(heartbeat_timer_);
  next_heartbeat_ = Clock::now() + pause;
  heartbeat_timer_ = loop_->call_at(next_heartbeat_, [this] { on_heartbeat(); });
}

void Agent::renew_marks() {
  staging_->renew_marks();
  loop_->call_after(kMarkRenewal, [this] { renew_marks(); });
}

void Agent::on_link_end(const std::string& why) {
  if (job_) job_->launcher_gone();
  end_job(grace());
}

void Agent::fail(Failure failure) {
  link_->send(FrameType::kFailure, encode(fit(std::move(failure))));
  end_job(grace());
}

void Agent::fail_protocol(std::string what) {
  fail({std::string(failure::kProtocol), "the agent on host " + host_ + " was sent " + what, ""});
}

void Agent::end_job(Milliseconds grace) {
  if (leaving_) return;
  if (job_) {
    job_->terminate(grace);
  } else {
    say_goodbye({});
  }
}

void Agent::say_goodbye(Goodbye goodbye) {
  cuts_.reset();
  if (leaving_) return;
  leaving_ = true;
  reserved_port_.holder.reset();
  prober_.reset();
  probe_listener_.reset();
  staging_->clean_up();
  link_->send(FrameType::kGoodbye, encode(fit(std::move(goodbye))));
  if (link_->ended() || link_->all_sent()) return leave();
  link_->set_on_all_sent([this] { leave(); });
  loop_->call_after(kFarewellPatience, [this] { leave(); });
}

void Agent::leave() {
  done_ = true;
  loop_->stop();
}

void Agent::warn(std::string message) {
  constexpr int kWarn = 3;
  link_->log({kWarn, std::move(message)});
}

}  // namespace

int run_agent(const AgentOptions& options, ShimState& share, os::Fd shim_alive) {
  return Agent(options, share, std::move(shim_alive)).run();
}

}  // namespace hora::launcher
