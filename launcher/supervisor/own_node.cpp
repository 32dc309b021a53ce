// SPDX-License-Identifier: Apache-2.0
// This process answers node 0 as an agent does, over the connection of --join, and starts the ranks
// by the agent of this node, as any launcher does. Of what node 0 sends, only checked values pass:
// its command, variables, files and line for the shell do not.
#include "launcher/supervisor/own_node.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "launcher/dial/dial_stream.h"
#include "launcher/failures/failure_code.h"
#include "launcher/job/orders.h"
#include "launcher/protocol/exit_code.h"
#include "launcher/runs/run.h"
#include "launcher/supervisor/supervisor.h"
#include "launcher/text/units.h"
#include "rendezvous/base/little_endian.h"

namespace hora::launcher {

namespace {

constexpr int kFirst = 0;  // node 0, of which only the connection is here
constexpr int kOwn = 1;
constexpr Milliseconds kOwnStart{30'000};  // once node 0 has all nodes

// Outlives the run.
struct Meeting {
  const JoinOptions& join;
  std::string first;  // node 0, for people
  std::unique_ptr<net::Stream> stream;
};

class OwnNodeRun final : public Run {
 public:
  OwnNodeRun(RunContext context, Meeting& meeting)
      : Run(std::move(context)),
        meeting_(meeting),
        stream_(context_.loop, std::move(meeting.stream), kLargestDialFrame,
                DialStream::Handlers{[this](const DialFrame& frame) { on_frame(frame); },
                                     [this](const std::string& why) { on_lost(why); }, [] {}}) {}
  ~OwnNodeRun() override { context_.loop.cancel(timer_); }

  Status make_plan() override;
  void connect() override;
  void prepare_all() override;
  void on_probe_result(int, ProbeResult result) override { report(std::move(result)); }
  void on_ready(int, AgentReady) override { report(AgentReady{}); }
  void start_all() override { context_.fleet.send(kOwn, StartRanks{}); }
  void on_started(int, const Started& started) override;
  void on_progress(int, const RankProgress& progress) override { report(progress); }
  bool end_host(int host) override { return host == kFirst && !first_is_over_; }
  int exit_code() const override { return exit_code_; }
  void on_job_event(const Event& event) override { std::visit(Reporter{*this}, event); }

 private:
  // What happens here, as it is reported to node 0.
  struct Reporter {
    OwnNodeRun& run;
    void operator()(const RankEnded& ended) const { run.report(ended.exit); }
    void operator()(const HostRanksGone&) const { run.report(RanksGone{}); }
    // Node 0 has nothing to add to that: the job state need not wait for it.
    void operator()(const HostFailed& failed) const {
      run.report_end(failed.host, failed.failure);
      if (failed.host == kOwn) run.context_.feed(HostReady{kFirst});
    }
    void operator()(const LaunchFailed& failed) const {
      if (failed.failure.code != failure::kElsewhere) run.report_end(kOwn, failed.failure);
    }
    void operator()(const HostLost& lost) const {
      run.report_end(lost.host, Failure{std::string(failure::kHostLost), lost.detail, ""});
    }
    void operator()(const HostFinished& finished) const {
      run.report_end(finished.host, finished.goodbye);
    }
    void operator()(const auto&) const {}
  };

  void on_frame(const DialFrame& frame);
  void on_lost(const std::string& why);
  void on_over(int exit_code);
  void end_elsewhere();
  void read(std::string_view bytes);
  void beat();
  void leave(std::string_view code, const std::string& why);

  // What node 0 says to an agent.
  void on(const Probe& probe) { context_.fleet.send(kOwn, probe); }
  void on(const HostOrder& order);
  void on(const StartRanks&) { context_.feed(HostReady{kFirst}); }
  void on(const TerminateRanks& terminate);
  void on(const SignalRanks& signal) { context_.fleet.send(kOwn, signal); }
  void on(const SignalRank& signal) { context_.fleet.send(kOwn, signal); }
  void on(const DumpStacks&) { report(StackReport{}); }
  void on(const SampleRanks&) { report(RankSamples{}); }
  void on(const auto&) {}  // for an agent that node 0 may trust with more

  template <Framed Message>
  void report(Message message) {
    turns_.note_sent(Message::kRule.type);
    send(encode_frame(fit(std::move(message))));
  }
  void send(std::string_view bytes);
  template <Framed Message>
  void report_end(int host, Message message);

  Meeting& meeting_;
  DialStream stream_;
  std::string number_;  // of node 0's command, in bytes; empty: it has not begun
  FrameReader frames_;
  Turns turns_;
  bool has_ended_ = false;      // the part here, as node 0 knows
  bool first_is_over_ = false;  // node 0 has said so, or is lost
  int exit_code_ = 0;           // of node 0; 0: none yet, or success
  Clock::time_point received_at_;
  bool was_silent_ = false;
  os::EventLoop::TimerId timer_ = 0;
};

// --- this node -----------------------------------------------------------------------------------

// Which ranks run here comes with the order.
Status OwnNodeRun::make_plan() {
  plan_.hosts = {{Host{meeting_.first, "", {}}, 0, {}}, {Host{meeting_.join.name, "", {}}, 1, {}}};
  return Ok{};
}

void OwnNodeRun::connect() {
  context_.narrator.begin_start({});
  context_.narrator.end_start();
  context_.fleet.add(plan_.hosts[kFirst].host, /*local=*/false);
  context_.fleet.add(plan_.hosts[kOwn].host, /*local=*/true);
  if (const auto opened = stream_.open(); !opened) return on_lost(opened.error().message);
  stream_.send(DialFrameType::kJoin, encode(join_request(meeting_.join)));
}

// The agent here has greeted. What it says of this account stays here.
void OwnNodeRun::prepare_all() {
  Hello hello = *context_.fleet.hello(kOwn);
  for (std::string* own : {&hello.agent_sha256, &hello.home, &hello.user, &hello.cache_directory,
                           &hello.ssh_connection}) {
    own->clear();
  }
  hello.missing_parts.clear();  // they come from here
  send(kAgentMagic);
  report(std::move(hello));
  received_at_ = Clock::now();
  beat();
}

void OwnNodeRun::on_started(int, const Started& started) {
  context_.narrator.all_ranks_run();
  context_.on_running();
  report(started);
}

void OwnNodeRun::send(std::string_view bytes) {
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kDialPiece))) {
    stream_.send(DialFrameType::kOutput, number_, bytes.substr(0, kDialPiece));
  }
}

// The last message. Node 0 then waits for nothing from here; the connection stays for the job's
// exit code.
template <Framed Message>
void OwnNodeRun::report_end(int host, Message message) {
  if (host == kFirst || number_.empty() || std::exchange(has_ended_, true)) return;
  report(std::move(message));
  std::string payload = number_;
  append_u32(payload, 0);
  stream_.send(DialFrameType::kEnded, payload);
}

// --- node 0 --------------------------------------------------------------------------------------

void OwnNodeRun::on_frame(const DialFrame& frame) {
  std::string_view rest = frame.payload;
  received_at_ = Clock::now();
  if (frame.type == DialFrameType::kRefused) {
    return leave(failure::kConnect, "it does not let this node in: " + visible_line(rest));
  }
  if (frame.type == DialFrameType::kAccepted) {
    return context_.narrator.print("joined the job of " + meeting_.first + " as " +
                                   meeting_.join.name + "\n");
  }
  const auto number = read_u32(rest);
  if (!number) return leave(failure::kProtocol, "it broke the protocol");
  const std::string_view head = frame.payload.substr(0, frame.payload.size() - rest.size());
  if (frame.type == DialFrameType::kOver) return on_over(static_cast<int>(*number & 0xff));
  if (head == number_) {
    // Nothing is due before the agent's hello.
    const bool is_due = turns_.has_sent(FrameType::kHello);
    if (frame.type == DialFrameType::kInput && is_due) return read(rest);
    // It has given this node up; the exit code follows.
    return end_elsewhere();
  }
  // Its text is for hosts that run what node 0 sends.
  if (frame.type != DialFrameType::kRun || !number_.empty()) return;
  number_ = head;
  context_.feed(HostGreeted{kFirst});
  if (auto failed = context_.fleet.connect(kOwn, Clock::now() + kOwnStart)) {
    context_.feed(HostFailed{kOwn, std::move(*failed)});
  }
}

void OwnNodeRun::on_lost(const std::string& why) {
  if (std::exchange(first_is_over_, true)) return;
  context_.feed(HostLost{kFirst, "the connection to it was lost: " + why, received_at_});
}

void OwnNodeRun::leave(std::string_view code, const std::string& why) {
  if (std::exchange(first_is_over_, true)) return;
  stream_.close();
  if (number_.empty()) {  // nothing has begun here: there is nothing to wait for
    const Failure failure{std::string(code), meeting_.first + ": " + why, ""};
    return context_.feed(LaunchFailed{failure, kExitLauncher});
  }
  context_.feed(HostFailed{kFirst, Failure{std::string(code), why, ""}});
}

void OwnNodeRun::on_over(int exit_code) {
  if (std::exchange(first_is_over_, true)) return;
  exit_code_ = exit_code;
  stream_.close();
  if (exit_code != 0) end_elsewhere();
  context_.feed(HostFinished{kFirst, {}});
}

void OwnNodeRun::read(std::string_view bytes) {
  frames_.feed(bytes);
  while (!first_is_over_) {
    auto frame = frames_.next();
    if (!frame) return leave(failure::kProtocol, frame.error().message);
    if (!frame->has_value()) return;
    const FrameType type = (*frame)->type;
    auto message = read_launcher_frame(std::move(**frame), turns_);
    if (!message) return leave(failure::kProtocol, message.error().message);
    turns_.note_received(type);
    std::visit([this](const auto& each) { on(each); }, *message);
  }
}

void OwnNodeRun::on(const HostOrder& order) {
  auto place = read_place_order(order, plan_.hosts[kFirst].host, plan_.hosts[kOwn].host,
                                meeting_.join.slots);
  if (context_.is_over()) return;
  // Node 0 runs another command line, or is not a launcher.
  if (!place) return launch_failed(failure::kUsage, place.error());
  context_.identity = std::move(place->identity);
  use_plan(std::move(place->plan));
  if (auto opened = streams_->open(); !opened) {
    return launch_failed(failure::kUsage, opened.error());
  }
  context_.fleet.send(kOwn,
                      make_order(context_.spec, plan_, kOwn, place->routes,
                                 /*same_machine=*/true, context_.identity, context_.environment));
}

// The job ends, for a reason that node 0 knows; a second time, it ends at once.
void OwnNodeRun::on(const TerminateRanks& terminate) {
  if (context_.is_over()) return context_.fleet.send(kOwn, terminate);
  end_elsewhere();
}

void OwnNodeRun::end_elsewhere() {
  if (context_.is_over()) return;
  context_.feed(LaunchFailed{Failure{std::string(failure::kElsewhere),
                                     meeting_.first + " has ended the job", "its output says why"},
                             kExitLauncher});
}

// As between a launcher and an agent.
void OwnNodeRun::beat() {
  constexpr Milliseconds kSecondLook{100};  // what has come may wait, if we were stopped
  const Milliseconds lease = context_.spec.lease;
  const bool is_silent = context_.loop.polled_at() - received_at_ > lease;
  if (is_silent && std::exchange(was_silent_, true)) {
    stream_.close();
    return on_lost("it was silent for " + format_duration(lease));
  }
  was_silent_ = is_silent;
  report(Heartbeat{});
  timer_ = context_.loop.call_after(is_silent ? kSecondLook : lease / 4, [this] { beat(); });
}

// What is node 0's to do for all, and what ranks here do not have.
JobSpec part_of(JobSpec spec) {
  spec.start_timeout = spec.listen->timeout + kOwnStart;
  spec.timeout.reset();
  spec.chaos.reset();
  spec.pty.reset();
  spec.report_files.clear();
  spec.stdin_policy = StdinPolicy::kNone;
  return spec;
}

}  // namespace

Result<int> run_own_node(JobSpec spec, const Installation& installation,
                         const EnvironmentList& environment, const JoinOptions& join,
                         std::unique_ptr<net::Stream> stream) {
  Meeting meeting{join, "node 0 (" + join.url.addresses.front().host + ")", std::move(stream)};
  Supervisor supervisor(part_of(std::move(spec)), installation, environment,
                        [&meeting](RunContext context) {
                          return std::make_unique<OwnNodeRun>(std::move(context), meeting);
                        });
  return supervisor.run();
}

}  // namespace hora::launcher
