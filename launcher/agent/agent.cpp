// SPDX-License-Identifier: Apache-2.0
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

#include "launcher/agent/delivery_intake.h"
#include "launcher/agent/greeting.h"
#include "launcher/agent/host_job.h"
#include "launcher/agent/launcher_link.h"
#include "launcher/agent/order_check.h"
#include "launcher/agent/prober.h"
#include "launcher/agent/rank_samples.h"
#include "launcher/agent/stack_collector.h"
#include "launcher/agent/staging.h"
#include "launcher/failures/failure_code.h"
#include "launcher/machine/host_facts.h"
#include "launcher/network/relay.h"
#include "launcher/process/one_cpu.h"
#include "launcher/protocol/exit_code.h"
#include "launcher/protocol/messages.h"
#include "launcher/store/own_image.h"
#include "launcher/text/text.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

namespace {

constexpr Milliseconds kDefaultGrace{5'000};
constexpr Milliseconds kMarkRenewal{3'600'000};   // store/directories.h: kAbandonedAfterS
constexpr Milliseconds kFirstWords{50};           // after the start of an only rank
constexpr Milliseconds kFarewellTimeout{10'000};  // for a launcher that does not read the goodbye

// Takes what the launcher says and hands it to the part that it is for; knows the order in which
// things may come, and how to leave.
//
//   greeted --order--> prepared --start--> running --all ended--> leaving --> done
//      |                   |                  |                     ^
//      +-------------------+------ fail(), lost launcher, signal ---+      by end_job()
class Agent {
 public:
  Agent(const AgentOptions& options, ShimState& share, os::Fd shim_alive,
        std::unique_ptr<OneCpu> place)
      : options_(options),
        share_(share),
        shim_alive_(std::move(shim_alive)),
        one_cpu_(std::move(place)) {}

  int run();

 private:
  Status open();
  Status watch_signals();
  Status watch_shim();
  void greet();

  void on_message(LauncherMessage message);
  void on(Heartbeat);
  void on(DeliveryFrame delivery) { intake_->on(std::move(delivery)); }
  void on(const OfferTree& tree) { intake_->on(tree); }
  void on(KeepDelivery order) { intake_->on(std::move(order)); }
  void on(FetchDelivery order) { intake_->on(std::move(order)); }
  void on(const ForgetDeliveries& forget) { intake_->on(forget); }
  void on(const Probe& probe);
  void on(HostOrder order);
  void on(StartRanks);
  void on(TerminateRanks end) { end_job(end.grace, end.signal); }
  void on(TerminateRank end);
  void on(SignalRanks signal);
  void on(SignalRank signal);
  void on(SuspendRanks);
  void on(ResumeRanks);
  void on(DumpStacks dump);
  void on(SampleRanks);
  void on(OutputTaken taken);
  void on(const RankInput& input);
  void on(RankInputEnd end);
  void on(ResizeTerminal size);
  void on(const OpenRelay& order);
  void on(const RelayedBytes& relayed);
  void on(RelayedBytesTaken taken);
  void on(LeaveHost) { leave(); }

  std::optional<Failure> prepare_place(bool ship_directory, JobPlace& place);
  void serve_pmi();
  void on_launcher_lost();
  void on_lease_over();
  void on_signals();
  void renew_marks();

  void fail(Failure failure);
  void fail_protocol(const std::string& what);
  void end_job(Milliseconds grace, int signal = SIGTERM);
  bool is_passed_on_twice(const signalfd_siginfo& info);
  void say_goodbye(Goodbye goodbye);
  void leave() { loop_->stop(); }
  void warn(std::string message);

  Milliseconds grace() const { return job_ ? Milliseconds(job_->order().grace_ms) : kDefaultGrace; }

  const AgentOptions& options_;
  ShimState& share_;
  os::Fd shim_alive_;
  std::unique_ptr<os::EventLoop> loop_;
  std::unique_ptr<LauncherLink> link_;
  std::unique_ptr<LauncherLease> lease_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<DeliveryIntake> intake_;
  std::unique_ptr<ProbeListener> probe_listener_;
  std::unique_ptr<RelayDoor> relay_;
  std::unique_ptr<Prober> prober_;
  std::unique_ptr<StackCollector> stacks_;
  std::unique_ptr<HostJob> job_;
  std::unique_ptr<OneCpu> one_cpu_;  // null: everywhere
  os::Fd signals_;
  ReservedPort reserved_port_;
  bool leaving_ = false;
  struct {
    std::uint32_t signal = 0;
    bool from_shim = false;
    Clock::time_point when{};
  } user_signal_;  // the last
};

int Agent::run() {
  auto loop = os::EventLoop::create();
  if (!loop) {
    std::fprintf(stderr, "hora-agent: %s\n", loop.error().message.c_str());
    return kExitLauncher;
  }
  loop_ = std::move(*loop);
  link_ = std::make_unique<LauncherLink>(*loop_, STDIN_FILENO, STDOUT_FILENO);
  lease_ = std::make_unique<LauncherLease>(
      *loop_, *link_,
      LauncherLease::Options{options_.launcher, Milliseconds(options_.suspended_lease_ms)},
      [this] { on_lease_over(); });
  const Staging::Source source{options_.cache_directory, options_.own_sha256, options_.local_bundle,
                               options_.cleans_cache,
                               cache_limits(options_.cache_max_age_s, options_.cache_max_bytes)};
  staging_ = std::make_unique<Staging>(source, share_);
  intake_ = std::make_unique<DeliveryIntake>(*loop_, *link_, *staging_,
                                             [this](Failure failure) { fail(std::move(failure)); });
  if (const Status opened = open(); !opened) {
    // The stream may still carry the reason; the exit code states it in any case.
    const Failure failure{std::string(failure::kAgent), opened.error().message, ""};
    const std::string text = std::string(kAgentMagic) + encode_frame(fit(failure));
    [[maybe_unused]] ssize_t wrote = ::write(STDOUT_FILENO, text.data(), text.size());
    std::fprintf(stderr, "hora-agent: %s\n", opened.error().message.c_str());
    share_.finished = 1;
    return kExitLauncher;
  }
  greet();
  if (!loop_->run()) return kExitLauncher;  // the shim cleans up
  share_.finished = 1;
  if (one_cpu_) one_cpu_->stay_to_the_end();
  return kExitOk;
}

Status Agent::open() {
  HORA_TRY(watch_signals());
  HORA_TRY(watch_shim());
  HORA_TRY(link_->open({[this](LauncherMessage message) { on_message(std::move(message)); },
                        [this](const std::string& what) {
                          if (!leaving_) fail_protocol(what);
                        },
                        [this](const std::string&) { on_launcher_lost(); }}));
  lease_->begin();
  loop_->call_after(kMarkRenewal, [this] { renew_marks(); });
  // Whether or not an order has come: the launcher leaves at its own time, and is not waited for.
  if (one_cpu_) loop_->call_after(OneCpu::kWhile, [this] { one_cpu_.reset(); });
  return Ok{};
}

Status Agent::watch_signals() {
  sigset_t watched;
  ::sigemptyset(&watched);
  for (int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    ::sigaddset(&watched, signal);
  }
  signals_ = os::Fd(::signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_.valid()) return errno_error(errno, "watching signals");
  return loop_->watch(signals_.get(), EPOLLIN, [this](std::uint32_t) { on_signals(); });
}

Status Agent::watch_shim() {
  return loop_->watch(shim_alive_.get(), EPOLLIN, [this](std::uint32_t) {
    loop_->unwatch(shim_alive_.get());
    fail(
        {std::string(failure::kAgent),
         "the process that watches over the job on this host (hora-agent) was killed, and the job "
         "with it",
         "horarun did not send that signal: look for what kills processes of this user there, such "
         "as a script that cleans up, or the kernel when memory runs out (dmesg)"});
  });
}

void Agent::greet() {
  Hello hello = describe_host(options_, *staging_, one_cpu_.get());
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
  link_->send(std::move(hello));
}

// --- what the launcher says ----------------------------------------------------------------------

void Agent::on_message(LauncherMessage message) {
  // What else comes crossed the goodbye on its way.
  if (leaving_ && !std::holds_alternative<LeaveHost>(message)) return;
  std::visit([this](auto& each) { on(std::move(each)); }, message);
}

// The lease is not known before the order: answer at the launcher's own pace.
void Agent::on(Heartbeat) {
  if (!job_) link_->send(Heartbeat{});
}

// The launcher sends the orders after it. They carry the port to the ranks.
void Agent::on(const OpenRelay& order) {
  auto door = RelayDoor::open(*loop_, order.address, [this](const RelayMessage& message) {
    std::visit([this](const auto& each) { link_->send(each); }, message);
  });
  if (door) relay_ = std::move(*door);
  link_->send(RelayPort{relay_ ? relay_->port() : 0});
}

void Agent::on(const RelayedBytes& relayed) {
  if (relay_) relay_->channels().on_data(relayed.number, relayed.bytes);
}

void Agent::on(RelayedBytesTaken taken) {
  if (relay_) relay_->channels().on_taken(taken.number);
}

void Agent::on(const Probe& probe) {
  prober_ = std::make_unique<Prober>(*loop_, probe, [this](ProbeResult result) {
    link_->send(std::move(result));
    // It is still on the stack: destroyed by the next turn of the loop.
    loop_->post([finished = std::shared_ptr<Prober>(std::move(prober_))] {});
  });
  prober_->start();
}

// Everything that can fail for the whole host fails here, before any rank runs on any host: the
// launcher sends kStart when all agents are ready.
void Agent::on(HostOrder order) {
  // The job would start with half of a file.
  if (staging_->in_progress()) return fail_protocol("an order inside a delivery");
  if (const Status sound = check_order(order); !sound) return fail_protocol(sound.error().message);
  probe_listener_.reset();
  // Several ranks start side by side, and a server of theirs stays where it is started.
  if (one_cpu_ && (order.ranks.size() != 1 || !order.pmi.empty())) {
    take_shim_along(*one_cpu_);
    one_cpu_.reset();
  }
  JobPlace place;
  if (one_cpu_) place.cpus = one_cpu_->everywhere();
  const OneCpu::Pause pause(one_cpu_.get());
  if (auto failure = prepare_place(order.ship_directory, place)) return fail(std::move(*failure));
  auto prepared = PreparedJob::prepare(std::move(order), place);
  if (auto* failure = std::get_if<Failure>(&prepared)) return fail(std::move(*failure));
  auto& job = std::get<PreparedJob>(prepared);
  if (JobCgroup* cgroup = job.cgroup()) set_shared_text(share_.cgroup, cgroup->path());
  job_ = std::make_unique<HostJob>(*loop_, *link_, std::move(job), place.mark);
  const Status opened = job_->open([this](Goodbye goodbye) { say_goodbye(std::move(goodbye)); });
  if (!opened) return fail({std::string(failure::kAgent), opened.error().message, ""});
  share_.timeout_ms = static_cast<int>(grace().count()) + options_.shim_margin_ms;
  if (job_->order().pmi.empty()) {
    link_->send(AgentReady{staging_->bundle_root()});
  } else {
    serve_pmi();
  }
  lease_->take_order(Milliseconds(job_->order().lease_ms));
}

// This host's additions to the order.
std::optional<Failure> Agent::prepare_place(bool ship_directory, JobPlace& place) {
  if (ship_directory) {
    // Files came before; without any, the folder is made now.
    if (const auto directory = staging_->job_directory(); !directory) {
      return Failure{std::string(failure::kShip), directory.error().message, ""};
    }
  }
  if (staging_->has_tree()) {
    if (auto failure = staging_->place_tree()) return failure;
  }
  place.bundle_root = staging_->bundle_root();
  place.environment_root = staging_->environment_root();
  place.job_directory = staging_->job_directory_if_any();
  place.mark = share_.mark;
  stacks_ = std::make_unique<StackCollector>(*loop_);
  place.stacks_place = stacks_->open();
  place.stacks_signal = StackCollector::signal_number();
  place.cgroup_word = place.mark.substr(place.mark.size() - 16);
  return std::nullopt;
}

void Agent::on(StartRanks) {
  // A launcher may be killed as soon as it has said so, or before the agent that it has written to
  // begins: then no rank starts.
  if (link_->hung_up()) return on_launcher_lost();
  // On one CPU a launcher that is woken now takes it from the only rank. If that ends soon, all is
  // one message.
  if (one_cpu_) link_->hold_back(kFirstWords);
  job_->start();
}

void Agent::on(TerminateRank end) {
  if (job_) job_->end_rank(end.rank, end.grace);
}

void Agent::on(SignalRanks signal) {
  if (job_) job_->signal_ranks(signal.signal);
}

void Agent::on(SignalRank signal) {
  if (job_) job_->signal_rank(signal.rank, signal.signal);
}

void Agent::on(SuspendRanks) {
  lease_->suspend(true);
  if (job_) job_->suspend();
  link_->send(AgentSuspended{});  // done: the launcher may stop now
}

void Agent::on(ResumeRanks) {
  lease_->suspend(false);
  if (job_) job_->resume();
}

void Agent::on(DumpStacks dump) {
  if (!job_ || !stacks_) {
    link_->send(StackReport{});
    return;
  }
  stacks_->collect(job_->living_ranks(), job_->flight_records(), dump.timeout,
                   [this](StackReport report) { link_->send(std::move(report)); });
}

void Agent::on(SampleRanks) {
  RankSamples samples;
  if (job_) {
    samples.ranks = take_samples(job_->living_ranks(), job_->flight_records(), job_->output());
  }
  link_->send(fit(std::move(samples)));
}

void Agent::on(OutputTaken taken) {
  if (job_) job_->output().acknowledge(taken.bytes);
}

void Agent::on(const RankInput& input) {
  if (job_) job_->input().write(input.rank, input.bytes);
}

void Agent::on(RankInputEnd end) {
  if (job_) job_->input().end(end.rank);
}

void Agent::on(ResizeTerminal size) {
  if (job_) job_->input().resize(size.rank, size.rows, size.columns);
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
  const Status started =
      job_->serve_pmi(*directory, {[this] { link_->send(AgentReady{staging_->bundle_root()}); },
                                   [this](std::string note) { warn(std::move(note)); }, failed});
  if (!started) failed(started.error().message);
}

// --- life ----------------------------------------------------------------------------------------

void Agent::on_signals() {
  signalfd_siginfo info;
  bool child = false;
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) {
      child = true;
    } else if (signal == SIGUSR1 || signal == SIGUSR2) {
      if (job_ && !is_passed_on_twice(info)) job_->signal_ranks(signal);
    } else {
      warn("the agent received " + signal_name(signal) + " and ends the job");
      end_job(grace(), signal == SIGQUIT ? SIGTERM : signal);
    }
  }
  if (child && job_) job_->on_child_ended();
}

// A batch system signals all that it has started, and the shim passes on its own.
bool Agent::is_passed_on_twice(const signalfd_siginfo& info) {
  constexpr Milliseconds kAtOnce{500};
  const bool from_shim = static_cast<pid_t>(info.ssi_pid) == ::getppid();
  const auto now = Clock::now();
  const auto& [signal, was_from_shim, when] = user_signal_;
  if (signal == info.ssi_signo && was_from_shim != from_shim && now - when < kAtOnce) {
    user_signal_ = {};
    return true;
  }
  user_signal_ = {info.ssi_signo, from_shim, now};
  return false;
}

void Agent::renew_marks() {
  staging_->renew_marks();
  loop_->call_after(kMarkRenewal, [this] { renew_marks(); });
}

// The reason cannot be reported; a living launcher sees the end of the stream.
void Agent::on_launcher_lost() {
  if (leaving_) return leave();
  if (job_) job_->launcher_gone();
  end_job(grace());
}

void Agent::on_lease_over() {
  // The launcher may come back, and ask why.
  std::string why =
      "horarun gave " + describe(link_->silence().evidence(loop_->polled_at()),
                                 "it (process " + std::to_string(options_.launcher) + ")");
  if (lease_->suspended()) {
    const auto hours = std::chrono::duration_cast<std::chrono::hours>(lease_->limit()).count();
    why = "the job was suspended for " + std::to_string(hours) + " h, and was not resumed";
  }
  const Failure lost{std::string(failure::kHostLost), "its agent ended the ranks: " + why, ""};
  link_->send(lost);
  on_launcher_lost();
}

void Agent::fail(Failure failure) {
  link_->send(std::move(failure));
  end_job(grace());
}

void Agent::fail_protocol(const std::string& what) { fail(protocol_failure(what)); }

void Agent::end_job(Milliseconds grace, int signal) {
  if (leaving_) return;
  if (job_) {
    job_->terminate(grace, signal);
  } else {
    say_goodbye({});
  }
}

void Agent::say_goodbye(Goodbye goodbye) {
  if (leaving_) return;
  leaving_ = true;
  lease_->stop();
  reserved_port_.holder.reset();
  prober_.reset();
  probe_listener_.reset();
  intake_->end();
  staging_->clean_up();
  goodbye.stays = options_.stay;
  link_->send(std::move(goodbye));
  link_->flush_later();
  if (link_->ended() || link_->all_sent()) return leave();
  if (!options_.stay) link_->set_on_all_sent([this] { leave(); });
  loop_->call_after(kFarewellTimeout, [this] { leave(); });
}

void Agent::warn(std::string message) {
  constexpr int kWarn = 3;
  link_->log({kWarn, std::move(message)});
}

}  // namespace

int run_agent(const AgentOptions& options, ShimState& share, os::Fd shim_alive,
              std::unique_ptr<OneCpu> place) {
  return Agent(options, share, std::move(shim_alive), std::move(place)).run();
}

}  // namespace hora::launcher
