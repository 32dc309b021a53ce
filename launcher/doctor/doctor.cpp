// SPDX-License-Identifier: Apache-2.0
// One state machine for all hosts: connecting, clocks, examining, probing (in rounds), one job of
// all hosts, finishing. proceed() runs after every event and starts the next phase when each host
// that is still there has done its part; on_deadline() starts it without the hosts that have not.
#include "launcher/doctor/doctor.h"

#include <algorithm>
#include <cmath>

#include "launcher/doctor/findings.h"
#include "launcher/failures/failure_code.h"
#include "launcher/failures/host_failure.h"
#include "launcher/failures/rank_exit_text.h"
#include "launcher/fleet/local_hosts.h"
#include "launcher/machine/host_facts.h"
#include "launcher/network/host_addresses.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/log.h"
#include "rendezvous/os/random.h"

namespace hora::launcher::doctor {

namespace {

constexpr std::chrono::milliseconds kDeepTimeout{125'000};
constexpr std::chrono::milliseconds kLeastTimeout{5'000};  // with one program or library
constexpr std::chrono::milliseconds kShipping{
    15'000};  // for a host that was reached and lacks the runtime
constexpr std::chrono::milliseconds kOverhead{3'000};
constexpr std::chrono::milliseconds kMeasuring{15'000};  // for all rounds together
constexpr std::chrono::milliseconds kFarewell{2'000};
constexpr std::chrono::milliseconds kGrace{500};
// Longer than a job's: self-tests and probes may keep a small host busy.
constexpr std::chrono::milliseconds kLease{30'000};
constexpr int kClocks = 3;
constexpr std::size_t kLongestLine = 1 << 20;

// The text of a host must not control the terminal, nor be so deep that walking it exhausts our
// stack.
void make_visible(Json& value) {
  if (value.is_string()) value = visible(value.get<std::string>());
  if (!value.is_structured()) return;
  for (auto each = value.begin(); each != value.end();) {
    if (value.is_object() && visible_line(each.key()) != each.key()) {
      each = value.erase(each);
    } else {
      make_visible(*each++);
    }
  }
}

Json parse_answer(const std::string& line) {
  constexpr int kDeepest = 16;
  const auto keep = [](int depth, Json::parse_event_t, Json&) { return depth < kDeepest; };
  Json value = Json::parse(line, keep, /*allow_exceptions=*/false);
  make_visible(value);
  return value;
}

// Of "host NAME (ADDRESS:PORT)" the address, unless it is the name again; another subject whole.
std::string address_in(const std::string& subject, const std::string& name) {
  const std::string head = "host " + name;
  if (subject == head) return {};
  if (!subject.starts_with(head + " (") || !subject.ends_with(")")) return subject;
  const std::string address = subject.substr(head.size() + 2, subject.size() - head.size() - 3);
  return address == name + ":22" ? "" : address;
}

}  // namespace

Doctor::Doctor(JobSpec spec, Installation installation, EnvironmentList environment, bool deep)
    : spec_(std::move(spec)),
      runtime_is_ours_(spec_.runtime == RuntimeKind::kHora),
      installation_(with_parts_for_doctor(std::move(installation), runtime_is_ours_)),
      environment_(std::move(environment)),
      start_(Clock::now()),
      display_(start_, !spec_.json && !spec_.verbose,
               [](const std::string& text) { std::fputs(text.c_str(), stderr); }) {
  examination_.deep = deep;
  examination_.engine = spec_.engine;
  for (const auto& [name, value] : forwarded_environment(environment_, spec_, false)) {
    if (name == rendezvous::env::kNcclInterfaces) examination_.nccl_interfaces = value;
  }
  for (const Build& build : installation_.builds) {
    if (runtime_is_ours_) examination_.least_glibc[build.machine] = build.least_glibc;
  }
  spec_.runtime = RuntimeKind::kHora;
}

Result<Examination> Doctor::run() {
  auto loop = os::EventLoop::create();
  if (!loop) return std::move(loop).error();
  loop_ = std::move(*loop);
  connect();
  fleet_->begin_heartbeats();
  phase_timer_ = loop_->call_at(start_ + spec_.start_timeout, [this] { on_deadline(); });
  proceed();
  HORA_TRY(loop_->run());
  display_.stop();
  examination_.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  return std::move(examination_);
}

void Doctor::connect() {
  std::vector<Host> hosts = spec_.hosts;
  if (hosts.empty()) hosts.push_back({"localhost", "", std::max(spec_.num_proc, 1)});
  std::vector<bool> local(hosts.size(), false);
  if (spec_.local_directly) local = find_local_hosts(hosts);
  fleet_ = std::make_unique<Fleet>(*loop_, spec_, installation_, Fleet::Options{.lease = kLease},
                                   [this](int host, const FleetEvent& event) {
                                     std::visit([&](const auto& each) { on(host, each); }, event);
                                   });
  states_.resize(hosts.size());
  std::vector<std::string> names;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    HostExamination host;
    host.name = hosts[i].name;
    host.slots = hosts[i].slots.value_or(0);
    examination_.hosts.push_back(std::move(host));
    names.push_back(hosts[i].name);
    states_[i].word = os::random_token();
    fleet_->add(hosts[i], local[i]);
  }
  display_.begin(*loop_, std::move(names));
  const auto deadline = start_ + spec_.start_timeout - std::chrono::milliseconds(250);
  for (int host = 0; host < fleet_->size(); ++host) {
    if (auto failed = fleet_->connect(host, deadline)) give_up(host, std::move(*failed));
  }
}

// --- what hosts say ---------------------------------------------------------------------------

void Doctor::on(int host, const StageReached& reached) {
  display_.reach(host, reached.stage, reached.detail);
}

void Doctor::on(int host, const AgentGreeted&) {
  examination_.hosts[host].hello = fleet_->hello(host);
  fleet_->send(host, order_for(host));
}

void Doctor::on(int host, const RuntimeMissing& missing) {
  give_up(host, {std::string(failure::kShip), missing.error.message, ""});
}

void Doctor::on(int host, const AgentReady&) {
  display_.reach(host, Stage::kRanks);
  fleet_->send(host, StartRanks{});
}

void Doctor::on(int host, const ProbeResult& result) {
  if (world_) world_->on_probe_result(host, result);
}

// The finding names the host by its list name, so only the address that a transport tried goes into
// the sentence, if it is another.
void Doctor::on(int host, const Failure& failure) {
  Failure shown = failure;
  const std::string& name = examination_.hosts[host].name;
  const std::string address = address_in(shown.subject, name);
  if (!address.empty()) shown.message = address + ": " + shown.message;
  give_up(host, std::move(shown));
}

void Doctor::on(int host, const RankExit& exit) {
  if (examined(host) || exit.terminated_by_us) return;
  give_up(host, {std::string(failure::kAgent),
                 "hora-doctor " + how_it_ended(exit) +
                     (exit.last_stderr.empty() ? "" : "; it said: " + visible(exit.last_stderr)),
                 ""});
}

void Doctor::on(int host, const AgentLeft&) {
  states_[host].over = true;
  if (world_) world_->on_lost(host);
  if (rounds_) rounds_->on_lost(host);
  fleet_->close(host);
  proceed();
}

void Doctor::on(int host, const AgentLost& lost) {
  if (states_[host].over) return;
  if (!examined(host)) return give_up(host, {std::string(failure::kHostLost), lost.detail, ""});
  states_[host].over = true;
  if (world_) world_->on_lost(host);
  if (rounds_) rounds_->on_lost(host);
  proceed();
}

HostOrder Doctor::order_for(int host) const {
  HostOrder order;
  order.job_id = os::random_token();
  order.working_directory = "/";
  order.argv = {"hora-doctor"};
  const bool local = !fleet_->is_remote(host);
  order.environment = forwarded_environment(environment_, spec_, local);
  // A host that cannot load the runtime is not asked to: otherwise each of its libraries would be
  // reported.
  const Hello& hello = *examination_.hosts[host].hello;
  const bool loads_runtime =
      runtime_is_ours_ &&
      !why_runtime_does_not_fit(hello.c_library, examination_.least_glibc_for(hello));
  const int ranks = loads_runtime ? std::max(examination_.hosts[host].slots, 1) : 0;
  order.environment = with_variables(order.environment,
                                     {{"HORA_DOCTOR_NONCE", states_[host].word},
                                      {"HORA_DOCTOR_DEEP", examination_.deep ? "1" : "0"},
                                      {"HORA_DOCTOR_TIMEOUT_MS", std::to_string(timeout().count())},
                                      {"HORA_DOCTOR_RANKS", std::to_string(ranks)},
                                      {"HORA_DOCTOR_CACHE", hello.cache_directory}});
  if (!local || spec_.container) order.own_variables = own_variables_of_remote();
  order.prepend_paths = {{"PATH", "@bundle@/bin"}};
  order.ranks.push_back({0, 0, {}, StdinSource::kStream});
  order.grace_ms = kGrace.count();
  order.lease_ms = kLease.count();
  return order;
}

void Doctor::on(int host, const RankOutput& output) {
  fleet_->send(host, OutputTaken{output.bytes.size()});
  if (output.stream != 1) return;
  std::string& line = states_[host].line;
  line.append(output.bytes);
  for (std::size_t end = line.find('\n'); end != std::string::npos; end = line.find('\n')) {
    Json value = parse_answer(line.substr(0, end));
    line.erase(0, end + 1);
    if (value.is_object()) on_line(host, value);
  }
  // An answer has no business being this long; what follows the next line feed is read again.
  if (line.size() > kLongestLine) line.clear();
}

void Doctor::on_line(int host, const Json& line) {
  HostExamination& seen = examination_.hosts[host];
  HostState& state = states_[host];
  if (line.contains("port")) {
    const Json& port = line["port"];
    state.port = port.is_number_unsigned() && port <= 65'535 ? port.get<int>() : 0;
    state.ready_to_probe = true;
  } else if (line.contains("machine")) {
    seen.machine = line["machine"];
    const Json& leftovers = member(line, "leftovers");
    seen.leftovers = leftovers.is_array() ? leftovers : Json::array();
  } else if (line.contains("software")) {
    seen.software = line["software"];
  } else if (line.contains("selftests")) {
    seen.selftests = line["selftests"];
  } else if (line.contains("world")) {
    if (world_) world_->on_answer(host, line["world"]);
    return;
  } else if (const Json& clock = member(line, "clock_ns");
             clock.is_number_unsigned() && clock <= kLatestClockNs) {
    return on_clock(host, clock.get<std::int64_t>());
  } else if (line.contains("probe") && line["probe"].is_string()) {
    const int peer = std::atoi(line["probe"].get<std::string>().c_str());
    if (peer >= 0 && peer < static_cast<int>(states_.size())) {
      // A doubtful link is measured twice.
      seen.peers[peer] = better_of(seen.peers[peer], line);
    }
    if (rounds_) rounds_->on_answer(host);
    return;
  }
  proceed();
}

void Doctor::give_up(int host, Failure failure) {
  HostExamination& seen = examination_.hosts[host];
  if (!seen.failure && !examined(host)) seen.failure = std::move(failure);
  states_[host].over = true;
  if (world_) world_->on_lost(host);
  if (rounds_) rounds_->on_lost(host);
  // By way of the loop: the link is on the stack.
  loop_->post([this, host] {
    fleet_->close(host);
    proceed();
  });
}

bool Doctor::examined(int host) const {
  const HostExamination& seen = examination_.hosts[host];
  return !seen.machine.is_null() && !seen.software.is_null() && !seen.selftests.is_null();
}

std::chrono::milliseconds Doctor::timeout() const {
  return std::max(kLeastTimeout, spec_.start_timeout);
}

// --- questions --------------------------------------------------------------------------------

void Doctor::send_line(int host, const std::string& line) {
  fleet_->send(host, RankInput{0, line + "\n"});
}

void Doctor::proceed() {
  const auto all = [this](auto condition) {
    for (int host = 0; host < static_cast<int>(states_.size()); ++host) {
      if (!states_[host].over && !condition(host)) return false;
    }
    return true;
  };
  if (phase_ == Phase::kConnecting && all([this](int h) { return states_[h].ready_to_probe; })) {
    phase_ = Phase::kClocks;
    display_.stop();
    loop_->cancel(phase_timer_);
    // One thing that hangs takes its time, two do, and what is quick comes on top.
    const auto limit =
        2 * timeout() + kOverhead + (examination_.deep ? kDeepTimeout : PeerRounds::kTimeout);
    phase_timer_ = loop_->call_after(limit, [this] { on_deadline(); });
    for (int host = 0; host < static_cast<int>(states_.size()); ++host) {
      if (!states_[host].over) ask_clock(host);
    }
  }
  if (phase_ == Phase::kClocks &&
      all([this](int h) { return states_[h].clocks_asked > kClocks; })) {
    phase_ = Phase::kExamining;
  }
  // Hosts measure their connections when nothing else runs there.
  if (phase_ == Phase::kExamining && all([this](int h) { return examined(h); })) {
    return begin_probing();
  }
  if (all([](int) { return false; })) loop_->stop();  // all are over
}

void Doctor::ask_clock(int host) {
  HostState& state = states_[host];
  ++state.clocks_asked;
  state.asked_at_ns = wall_clock_ns();
  send_line(host, "clock");
}

// As NTP does: the answer was given in the middle of the question's journey, give or take half of
// it.
void Doctor::on_clock(int host, std::int64_t clock_ns) {
  const std::int64_t now = wall_clock_ns();
  HostState& state = states_[host];
  HostExamination& seen = examination_.hosts[host];
  const double error = static_cast<double>(now - state.asked_at_ns) / 2e6;
  const double offset = static_cast<double>(clock_ns - state.asked_at_ns) / 1e6 - error;
  if (!seen.clock_offset_ms || error < seen.clock_error_ms) {
    seen.clock_offset_ms = offset;
    seen.clock_error_ms = error;
  }
  if (state.clocks_asked < kClocks) return ask_clock(host);
  state.clocks_asked = kClocks + 1;
  proceed();
}

void Doctor::on_deadline() {
  if (phase_ == Phase::kConnecting) {
    const auto& board = display_.board();
    const auto last = start_ + spec_.start_timeout + kShipping;
    const bool is_last = Clock::now() >= last;
    if (!is_last) phase_timer_ = loop_->call_at(last, [this] { on_deadline(); });
    for (int host = 0; host < static_cast<int>(states_.size()); ++host) {
      if (states_[host].over || states_[host].ready_to_probe) continue;
      if (examination_.hosts[host].hello && !is_last) continue;
      const auto& steps = board.steps()[static_cast<std::size_t>(host)];
      const Stage stage = steps.empty() ? Stage::kResolve : steps.back().stage;
      give_up(host, {std::string(failure::kStartTimeout),
                     "it got no further than '" + std::string(stage_name(stage)) + "' within " +
                         std::to_string(spec_.start_timeout.count() / 1000) +
                         " s: " + std::string(stage_advice(stage).cause),
                     "raise --start-timeout if it is only slow"});
    }
    return;
  }
  for (int host = 0; host < static_cast<int>(states_.size()); ++host) {
    if (states_[host].over) continue;
    HostExamination& seen = examination_.hosts[host];
    if (seen.machine.is_null()) seen.unanswered.push_back("what kind of machine it is");
    if (seen.software.is_null()) {
      seen.unanswered.push_back("which software it has");
    } else if (seen.selftests.is_null()) {
      seen.unanswered.push_back("whether its libraries work");
    }
  }
  begin_probing();
}

// --- between the hosts ------------------------------------------------------------------------

// "probe PEER PORT WORD ADDRESS...": the word proves that the right host answers.
std::string Doctor::probe_line(int host, int peer) const {
  std::string line = "probe " + std::to_string(peer) + " " + std::to_string(states_[peer].port) +
                     " " + states_[peer].word;
  for (const std::string& address :
       addresses_towards(*examination_.hosts[host].hello, *examination_.hosts[peer].hello)) {
    line += " " + address;
  }
  return line;
}

bool Doctor::measure(int host, int peer) {
  if (states_[host].over || states_[peer].over) return false;
  send_line(host, probe_line(host, peer));
  return true;
}

void Doctor::begin_probing() {
  phase_ = Phase::kProbing;
  loop_->cancel(phase_timer_);
  phase_timer_ = loop_->call_after(kMeasuring, [this] { begin_world(); });
  std::vector<int> hosts;
  for (int host = 0; host < fleet_->size(); ++host) {
    if (!states_[host].over && states_[host].port > 0) hosts.push_back(host);
  }
  rounds_ = std::make_unique<PeerRounds>(
      *loop_, std::move(hosts),
      PeerRounds::Handlers{[this](int host, int peer) { return measure(host, peer); },
                           [this] { return doubtful_ways(examination_); },
                           [this] { begin_world(); }});
  rounds_->begin();
}

// A host on which libhora does not even work alone would only keep the others waiting.
void Doctor::begin_world() {
  if (phase_ != Phase::kProbing) return;
  phase_ = Phase::kWorld;
  loop_->cancel(phase_timer_);
  rounds_.reset();
  std::vector<CommonWorld::Member> members;
  for (int host = 0; host < fleet_->size(); ++host) {
    const Json& alone = member(examination_.hosts[host].selftests, "alone");
    if (states_[host].over || !alone.is_object() || alone.contains("error")) continue;
    members.push_back({host, fleet_->name(host), fleet_->network(host)});
  }
  // If a route is broken, a common job would only time out.
  if (members.size() < 2 || !all_routes_work(examination_)) return finish_asking();
  world_ = std::make_unique<CommonWorld>(
      *loop_, std::move(members), spec_.network_interfaces,
      CommonWorld::Actions{[this](int host, const Probe& probe) { fleet_->send(host, probe); },
                           [this](int host, const std::string& line) { send_line(host, line); },
                           [this] {
                             examination_.world = world_->result();
                             finish_asking();
                           }});
  world_->begin(timeout() + PeerRounds::kTimeout);
}

void Doctor::finish_asking() {
  if (phase_ == Phase::kFinishing) return;
  phase_ = Phase::kFinishing;
  loop_->cancel(phase_timer_);
  // The loop stops even if an agent does not answer.
  phase_timer_ = loop_->call_after(kFarewell, [this] { loop_->stop(); });
  for (int host = 0; host < fleet_->size(); ++host) {
    if (!states_[host].over) fleet_->send(host, TerminateRanks{kGrace});
  }
}

}  // namespace hora::launcher::doctor
