// SPDX-License-Identifier: Apache-2.0
// One state machine for all hosts: connecting, clocks, examining, probing (in rounds), one job of
// all hosts, finishing. proceed() runs after every event and starts the next phase when each host
// that is still there has done its part; on_deadline() starts it without the hosts that have not.
#include "launcher/doctor/doctor.h"

#include <algorithm>
#include <cmath>

#include "launcher/agent/host_facts.h"
#include "launcher/doctor/findings.h"
#include "launcher/failures/failure_code.h"
#include "launcher/failures/rank_exit_text.h"
#include "launcher/job/locality.h"
#include "launcher/protocol/agent_limits.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/log.h"
#include "rendezvous/os/random.h"

namespace hora::launcher::doctor {

namespace {

constexpr std::chrono::milliseconds kDeepPatience{125'000};
constexpr std::chrono::milliseconds kLeastPatience{5'000};  // with one program or library
constexpr std::chrono::milliseconds kShipping{
    15'000};  // for a host that was reached and lacks the runtime
constexpr std::chrono::milliseconds kOverhead{3'000};
constexpr int kMostRounds = 24;  // beyond so many hosts not every pair is measured
constexpr int kClocks = 3;
constexpr std::size_t kLongestLine = 1 << 20;

// What a host says on a terminal must not steer it, nor be so deep that walking it takes our stack.
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

}  // namespace

Doctor::Doctor(JobSpec spec, Installation installation, EnvironmentList environment, bool deep)
    : spec_(std::move(spec)),
      runtime_is_ours_(spec_.runtime == RuntimeKind::kHora),
      installation_(std::move(installation)),
      environment_(std::move(environment)),
      start_(os::Clock::now()),
      display_(start_, !spec_.json && !spec_.verbose,
               [](const std::string& text) { std::fputs(text.c_str(), stderr); }) {
  examination_.deep = deep;
  examination_.least_glibc = runtime_is_ours_ ? installation_.least_glibc : "";
  spec_.runtime = RuntimeKind::kHora;
}

// Links go before the transports that pump them.
Doctor::~Doctor() {
  patients_.clear();
  connector_.reset();
}

Result<Examination> Doctor::run() {
  auto loop = os::EventLoop::create();
  if (!loop) return std::move(loop).error();
  loop_ = std::move(*loop);
  connect();
  phase_timer_ = loop_->call_at(start_ + spec_.start_timeout, [this] { on_deadline(); });
  proceed();
  HORA_TRY(loop_->run());
  display_.stop();
  examination_.seconds = std::chrono::duration<double>(os::Clock::now() - start_).count();
  return std::move(examination_);
}

void Doctor::connect() {
  std::vector<Host> hosts = spec_.hosts;
  if (hosts.empty()) hosts.push_back({"localhost", "", std::max(spec_.num_proc, 1)});
  local_.assign(hosts.size(), false);
  if (spec_.local_directly) local_ = find_local_hosts(hosts);
  patients_.resize(hosts.size());
  std::vector<std::string> names;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    HostExamination host;
    host.name = hosts[i].name;
    host.slots = hosts[i].slots.value_or(0);
    examination_.hosts.push_back(std::move(host));
    names.push_back(hosts[i].name);
    patients_[i].word = os::random_token();
  }
  display_.begin(*loop_, std::move(names));
  connector_ = std::make_unique<HostConnector>(
      spec_, installation_, false, [this](int host, Stage stage, std::string_view detail) {
        loop_->post(
            // The connector reports from threads of its own.
            [this, host, stage, text = std::string(detail)] { display_.reach(host, stage, text); });
      });
  const auto deadline = start_ + spec_.start_timeout - std::chrono::milliseconds(250);
  for (int i = 0; i < static_cast<int>(hosts.size()); ++i) {
    auto stream = connector_->connect(hosts[static_cast<std::size_t>(i)], i, local_[i], deadline);
    if (!stream) {
      const std::string& what = stream.error().message;
      give_up(i, {std::string(failure::kConnect), what, failure::open_files_advice(what, "here")});
      continue;
    }
    patients_[i].link = std::make_unique<HostLink>(
        *loop_, std::move(*stream),
        HostLink::Handlers{[this, i](AgentMessage message) { take(i, message); },
                           [this, i](const std::string& what) {
                             give_up(i, {std::string(failure::kProtocol),
                                         "host " + examination_.hosts[i].name +
                                             ": its agent broke the protocol: " + what,
                                         ""});
                           },
                           [this, i](const std::string& detail) { on_link_end(i, detail); }});
    if (auto opened = patients_[i].link->open(); !opened) {
      give_up(i, {std::string(failure::kInternal), opened.error().message, ""});
    }
  }
}

// --- what hosts say ---------------------------------------------------------------------------

void Doctor::take(int host, AgentMessage& message) {
  std::visit(
      [&](auto& each) {
        if constexpr (requires { on(host, std::move(each)); }) on(host, std::move(each));
      },
      message);  // of logs and the ends of streams it has no use
}

void Doctor::on(int host, AgentReady) {
  display_.reach(host, Stage::kRanks);
  patients_[host].link->send(FrameType::kStart);
}

void Doctor::on(int host, ProbeResult result) {
  if (world_) world_->on_probe_result(host, std::move(result));
}

// The finding names the host by its list name, so the address that a transport tried goes into the
// sentence.
void Doctor::on(int host, Failure failure) {
  if (!failure.subject.empty()) failure.message = failure.subject + ": " + failure.message;
  give_up(host, std::move(failure));
}

void Doctor::on(int host, const RankExit& exit) {
  if (examined(host) || exit.terminated_by_us) return;
  give_up(host, {std::string(failure::kAgent),
                 "hora-doctor " + how_it_ended(exit) +
                     (exit.last_stderr.empty() ? "" : "; it said: " + visible(exit.last_stderr)),
                 ""});
}

void Doctor::on(int host, const Goodbye&) {
  patients_[host].over = true;
  if (world_) world_->on_lost(host);
  patients_[host].link->close();
  proceed();
}

void Doctor::on(int host, Hello hello) {
  examination_.hosts[host].hello = std::move(hello);
  HostLink& link = *patients_[host].link;
  if (!examination_.hosts[host].hello->have_bundle && !installation_.bundle_hash.empty()) {
    // Framed once, for the first host that lacks the runtime, and shared by all of them.
    if (!bundle_frames_) {
      auto frames = bundle_frames(installation_);
      if (!frames) return give_up(host, {std::string(failure::kShip), frames.error().message, ""});
      bundle_frames_ = *frames;
    }
    link.send_shared(bundle_frames_);
  }
  link.send(order_for(host));
}

HostOrder Doctor::order_for(int host) const {
  HostOrder order;
  order.job_id = os::random_token();
  order.working_directory = "/";
  order.argv = {"hora-doctor"};
  order.environment = forwarded_environment(environment_, spec_, local_[host]);
  const int ranks = runtime_is_ours_ ? std::max(examination_.hosts[host].slots, 1) : 0;
  order.environment = with_variables(
      order.environment, {{"HORA_DOCTOR_NONCE", patients_[host].word},
                          {"HORA_DOCTOR_DEEP", examination_.deep ? "1" : "0"},
                          {"HORA_DOCTOR_PATIENCE_MS", std::to_string(patience().count())},
                          {"HORA_DOCTOR_RANKS", std::to_string(ranks)},
                          {"HORA_DOCTOR_CACHE", examination_.hosts[host].hello->cache_directory}});
  if (!local_[host]) order.own_variables = own_variables_of_remote();
  order.prepend_paths = {{"PATH", "@bundle@/bin"}};
  order.ranks.push_back({0, 0, {}, StdinSource::kStream});
  order.grace_ms = 500;
  // Longer than a job's: self-tests and probes may keep a small host busy.
  order.lease_ms = 30'000;
  return order;
}

void Doctor::on(int host, const RankOutput& output) {
  const std::string_view bytes = output.bytes();
  patients_[host].link->send(FrameType::kOutputAck,
                             u32_payload(static_cast<std::uint32_t>(bytes.size())));
  if (output.stream != 1) return;
  std::string& line = patients_[host].line;
  line.append(bytes);
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
  Patient& patient = patients_[host];
  if (line.contains("port")) {
    const Json& port = line["port"];
    patient.port = port.is_number_unsigned() && port <= 65'535 ? port.get<int>() : 0;
    patient.ready_to_probe = true;
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
    if (peer >= 0 && peer < static_cast<int>(patients_.size())) {
      // A link may be measured twice (look_again()).
      seen.peers[peer] = better_of(seen.peers[peer], line);
    }
    patient.waits_for_answer = false;
  }
  proceed();
}

void Doctor::on_link_end(int host, const std::string& detail) {
  if (patients_[host].over) return;
  if (examined(host)) {
    patients_[host].over = true;
    if (world_) world_->on_lost(host);
    return proceed();
  }
  give_up(host, {std::string(examination_.hosts[host].hello ? failure::kHostLost : failure::kAgent),
                 "host " + examination_.hosts[host].name + ": " + detail, ""});
}

void Doctor::give_up(int host, Failure failure) {
  HostExamination& seen = examination_.hosts[host];
  if (!seen.failure && !examined(host)) seen.failure = std::move(failure);
  patients_[host].over = true;
  patients_[host].waits_for_answer = false;
  if (world_) world_->on_lost(host);
  // By way of the loop: the link is on the stack.
  loop_->post([this, host] {
    if (patients_[host].link) patients_[host].link->close();
    proceed();
  });
}

bool Doctor::examined(int host) const {
  const HostExamination& seen = examination_.hosts[host];
  return !seen.machine.is_null() && !seen.software.is_null() && !seen.selftests.is_null();
}

std::chrono::milliseconds Doctor::patience() const {
  return std::max(kLeastPatience, spec_.start_timeout);
}

// --- questions --------------------------------------------------------------------------------

void Doctor::tell(int host, const std::string& line) {
  patients_[host].link->send(FrameType::kInput, u32_payload(0) + line + "\n");
}

void Doctor::proceed() {
  const auto all = [this](auto condition) {
    for (int host = 0; host < static_cast<int>(patients_.size()); ++host) {
      if (!patients_[host].over && !condition(host)) return false;
    }
    return true;
  };
  if (phase_ == Phase::kConnecting && all([this](int h) { return patients_[h].ready_to_probe; })) {
    phase_ = Phase::kClocks;
    display_.stop();
    loop_->cancel(phase_timer_);
    // One thing that hangs takes its time, two do, and what is quick comes on top.
    const auto limit = 2 * patience() + kOverhead + (examination_.deep ? kDeepPatience : kRound);
    phase_timer_ = loop_->call_after(limit, [this] { on_deadline(); });
    for (int host = 0; host < static_cast<int>(patients_.size()); ++host) {
      if (!patients_[host].over) ask_clock(host);
    }
  }
  if (phase_ == Phase::kClocks &&
      all([this](int h) { return patients_[h].clocks_asked > kClocks; })) {
    phase_ = Phase::kExamining;
  }
  // What is measured between hosts is measured when nothing else runs there.
  if (phase_ == Phase::kExamining && all([this](int h) { return examined(h); })) {
    return begin_probing();
  }
  if (phase_ == Phase::kProbing && all([this](int h) { return !patients_[h].waits_for_answer; })) {
    const int rounds = std::min(static_cast<int>(probers_.size()) - 1, kMostRounds);
    return round_ < rounds ? begin_round() : look_again();
  }
  if (all([](int) { return false; })) loop_->stop();  // all are over
}

void Doctor::ask_clock(int host) {
  Patient& patient = patients_[host];
  ++patient.clocks_asked;
  patient.asked_at_ns = wall_clock_ns();
  tell(host, "clock");
}

// As NTP does: the answer was given in the middle of the question's journey, give or take half of
// it.
void Doctor::on_clock(int host, std::int64_t clock_ns) {
  const std::int64_t now = wall_clock_ns();
  Patient& patient = patients_[host];
  HostExamination& seen = examination_.hosts[host];
  const double error = static_cast<double>(now - patient.asked_at_ns) / 2e6;
  const double offset = static_cast<double>(clock_ns - patient.asked_at_ns) / 1e6 - error;
  if (!seen.clock_offset_ms || error < seen.clock_error_ms) {
    seen.clock_offset_ms = offset;
    seen.clock_error_ms = error;
  }
  if (patient.clocks_asked < kClocks) return ask_clock(host);
  patient.clocks_asked = kClocks + 1;
  proceed();
}

void Doctor::on_deadline() {
  if (phase_ == Phase::kConnecting) {
    const auto& board = display_.board();
    const auto last = start_ + spec_.start_timeout + kShipping;
    const bool is_last = os::Clock::now() >= last;
    if (!is_last) phase_timer_ = loop_->call_at(last, [this] { on_deadline(); });
    for (int host = 0; host < static_cast<int>(patients_.size()); ++host) {
      if (patients_[host].over || patients_[host].ready_to_probe) continue;
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
  for (int host = 0; host < static_cast<int>(patients_.size()); ++host) {
    if (patients_[host].over) continue;
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

}  // namespace hora::launcher::doctor
