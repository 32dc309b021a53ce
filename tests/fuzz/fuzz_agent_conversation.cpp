// SPDX-License-Identifier: Apache-2.0
// A host that says whatever it likes, to all that a launcher does with it: the conversation, the
// state of the job, the texts and the records that come of it. An honest host is next to it.
//
// The input is a list of steps. What the launcher does: 'P' sends a probe, 'O' the order, 'S' the
// start, 'D' asks for stacks, 'W' for samples, 'Z' suspends, 'A' acknowledges all output so far,
// 'I' sends 5 bytes of input, 'K' has it serve a part of the runtime, 'G' has it get one from two
// hosts. What the agent does: 'F' type:u8 length:u16le payload is a frame, 'B' length:u16le bytes
// are bytes as they come, 'M' length:u16le a frame header for that many megabytes. Other bytes are
// nothing.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/failures/failure_code.h"
#include "launcher/failures/rank_exit_text.h"
#include "launcher/job/job_state.h"
#include "launcher/output/line_tagger.h"
#include "launcher/protocol/agent_conversation.h"
#include "launcher/protocol/messages.h"
#include "launcher/report/hang_report_text.h"
#include "launcher/report/job_report.h"
#include "launcher/report/outcome_text.h"

using namespace hora;
using namespace hora::launcher;

namespace {

constexpr int kHonest = 0;
constexpr int kLiar = 1;
constexpr const char* kKept = "kept";
constexpr const char* kPartOfTree = "part";
constexpr const char* kFetched = "fetched";
constexpr std::int64_t kWindow = 2'000;
constexpr std::int64_t kNow = 1'800'000'000'000'000'000;

void check(bool condition) {
  if (!condition) std::abort();
}

// Nothing that is shown may steer a terminal.
void check_shown(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    check((c >= 0x20 || c == '\n' || c == '\t') && c != 0x7f);
    if (c == 0xc2 && i + 1 < text.size()) check(static_cast<unsigned char>(text[i + 1]) >= 0xa0);
  }
}

class Job {
 public:
  Job() : state_({2, Milliseconds(5'000), Milliseconds(30'000), {}, false}, now_) {
    for (const char* name : {"honest", "liar"}) {
      HostPlan& host = plan_.hosts.emplace_back();
      host.host.name = name;
      host.index = static_cast<int>(plan_.hosts.size()) - 1;
      for (int local = 0; local < 2; ++local) {
        host.slots.push_back({2 * host.index + local, local, host.index, 2});
      }
    }
    plan_.world_size = 4;
    step(HostGreeted{kHonest});
  }

  void do_as_launcher(char action) {
    switch (action) {
      case 'P':
        return conversation_.sent(Probe{{{kHonest, {"10.0.0.1", "fd00::1"}, 80, "x"}}, 100});
      case 'O':
        if (!ordered_) order();
        return;
      case 'S':
        return conversation_.sent(StartRanks{});
      case 'D':
        return conversation_.sent(DumpStacks{});
      case 'W':
        return conversation_.sent(SampleRanks{});
      case 'Z':
        return conversation_.sent(SuspendRanks{});
      case 'K':
        return conversation_.sent(KeepDelivery{kKept, "key"});
      case 'T':
        return conversation_.sent(OfferTree{{kPartOfTree, kKept}, {}, {}});
      case 'G':
        return conversation_.sent(FetchDelivery{kFetched, 100, "key", {{}, {}}});
      case 'R':
        relays_ = true;
        return conversation_.sent(OpenRelay{"10.0.0.1"});
      case 'A':
        conversation_.sent(OutputTaken{held_});
        held_ = 0;
        return;
      case 'I':
        conversation_.sent(RankInput{2, "input"});
        input_ += 5;
        return;
      default:
        return;
    }
  }

  void receive(std::string_view bytes) {
    if (closed_) return;
    conversation_.feed(bytes);
    while (!closed_) {
      auto message = conversation_.next();
      if (!message) {
        check(!message.error().message.empty());
        check_shown(message.error().message);
        broken_ = true;
        const bool is_first = !state_.ending();
        fail({std::string(failure::kProtocol), message.error().message, ""});
        if (is_first) check(state_.outcome().cause->host == kLiar && code() == 125);
        return;
      }
      if (!message->has_value()) break;
      std::visit([this](auto& each) { on(each); }, **message);
    }
    check(conversation_.buffered() <= kLargestStackReport + bytes.size());
  }

  // The other host ends well; this one has been waited for long enough.
  void end() {
    if (!closed_) {
      closed_ = true;
      const auto& exits = state_.outcome().exits;
      const int missing = static_cast<int>(2 - exits.count(2) - exits.count(3));
      if (goodbye_) {
        step(HostFinished{kLiar, *goodbye_, missing});
      } else {
        step(HostLost{kLiar, "no sign of life", now_});
      }
    }
    for (const int rank : {0, 1}) step(RankEnded{kHonest, exit_of(rank), Milliseconds(0)});
    step(HostFinished{kHonest, Goodbye{}, 0});
    if (!state_.done()) {
      now_ += std::chrono::hours(1);
      step(ClockTick{});
    }
    look_at_the_end();
  }

 private:
  static RankExit exit_of(int rank) {
    RankExit exit;
    exit.rank = rank;
    exit.clock_ns = kNow;
    return exit;
  }

  int code() const { return state_.outcome().exit_code(); }
  void step(const Event& event) { (void)state_.step(event, now_); }
  void fail(Failure failure) {
    closed_ = true;
    step(HostFailed{kLiar, std::move(failure)});
  }

  void order() {
    ordered_ = true;
    HostOrder order;
    for (const int rank : {2, 3}) order.ranks.push_back({rank, rank - 2, {}, StdinSource::kStream});
    order.output_window_bytes = kWindow;
    conversation_.sent(order);
    step(HostReady{kHonest});
  }

  void on(const auto&) {}  // others have nothing that could be wrong
  void on(Hello& hello) {
    check(!hello_);
    for (const std::string* text : {&hello.hostname, &hello.user, &hello.version})
      check_shown(*text);
    check(hello.gpus <= kMostGpus && hello.interfaces.size() <= kMostInterfaces);
    offset_ = Milliseconds((kNow - hello.clock_ns) / 1'000'000);
    hello_ = std::move(hello);
    step(HostGreeted{kLiar});
  }
  void on(ProbeResult& result) {
    check(result.answers.size() == 2);
    for (const ProbeAnswer& each : result.answers) check_shown(each.error + each.local_address);
  }
  void on(AgentReady&) { step(HostReady{kLiar}); }
  void on(Started& started) {
    check(started.pids.size() <= 2);
    for (const std::string& note : started.notes) check_shown(note);
  }
  void on(RankOutput& output) {
    check((output.rank == 2 || output.rank == 3) && !output.bytes.empty());
    held_ += output.bytes.size();
    check(held_ <= kWindow);
    std::string text;
    tagger_.feed(output.bytes, {}, text);
  }
  void on(RankOutputEnd& end) { check(end.rank == 2 || end.rank == 3); }
  void on(RankExit& exit) {
    check(exit.rank == 2 || exit.rank == 3);
    check(state_.outcome().exits.count(exit.rank) == 0);
    check(exit_code_of(exit) >= 0 && exit_code_of(exit) <= 255);
    check_shown(exit.hint + start_failure_text(exit) + exit.last_operation + exit.lost_record);
    step(RankEnded{kLiar, std::move(exit), offset_});
  }
  void on(InputTaken& taken) {
    check(taken.bytes <= input_);
    input_ -= taken.bytes;
  }
  void on(RankProgress& progress) { check(progress.worked <= 2); }
  void on(StackReport& report) {
    std::vector<RankStanding> standings;
    for (ProcessStacks& each : report.processes) standings.push_back({kLiar, std::move(each)});
    check_shown(hang_report_text("fuzz", std::move(standings), {kHonest}, plan_.hosts));
  }
  void on(RankSamples& samples) {
    check(samples.ranks.size() <= 2);
    for (const RankSample& sample : samples.ranks) {
      check(sample.rank == 2 || sample.rank == 3);
      check(sample.counters.collectives >= 0 && sample.counters.waited_us >= 0);
    }
  }
  void on(GpuFault& fault) {
    faults_.push_back({"liar", std::move(fault)});
    check(faults_.size() <= kMostGpuFaults);
    check_shown(gpu_fault_text(faults_.back()));
  }
  void on(DeliveryReport& report) {
    check(report.id == kKept || report.id == kFetched);
    check(report.port >= 0 && report.port <= 65'535 && (report.here || report.port == 0));
    check(report.refusals.size() <= (report.id == kKept ? 0u : 2u));
    for (const std::string& refusal : report.refusals) check_shown(refusal);
  }
  void on(TreeState& state) {
    check(state.missing.size() <= 2);
    for (const std::string& part : state.missing) check(part == kPartOfTree || part == kKept);
  }
  void on(RelayPort& relay) { check(relays_ && relay.port >= 0 && relay.port <= 65'535); }
  void on(RelayOpened&) { check(relays_); }
  void on(RelayedBytes& relayed) { check(relays_ && relayed.bytes.size() <= kMostRelayed); }
  void on(RelayedBytesTaken&) { check(relays_); }
  void on(RanksGone&) { step(HostRanksGone{kLiar}); }
  void on(LogLine& line) {
    check(++log_lines_ <= kMostLogLines && line.message.size() <= kMostText);
    check_shown(line.message);
    check(line.message.find('\n') == std::string::npos);
  }
  void on(Failure& failure) { fail(std::move(failure)); }
  void on(Goodbye& goodbye) {
    check(!goodbye_);
    goodbye_ = goodbye;
  }

  // Success is possible only if it has reported that both ranks succeeded, and sent its goodbye;
  // its messages are reported in its own name.
  void look_at_the_end() const {
    check(state_.done());
    const JobOutcome& outcome = state_.outcome();
    check(code() >= 0 && code() <= 255);
    if (code() == 0) {
      check(!broken_ && goodbye_ && outcome.exits.size() == 4);
    } else {
      check(outcome.cause->host != kHonest);
    }
    for (const int rank : {0, 1}) {
      const auto exit = outcome.exits.find(rank);
      check(exit == outcome.exits.end() || exit_code_of(exit->second) == 0);
    }
    const std::string text = describe_outcome(outcome, plan_.hosts, {"", "ssh", {}, "/", faults_});
    check_shown(text);
    check(text.size() < 100'000);
    for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
      check(text.substr(at, 11) != "host honest" && text.substr(at, 7) != "rank 0 ");
    }
    StartBoard board(now_);
    JobReport report;
    report.plan = &plan_;
    report.outcome = &outcome;
    report.board = &board;
    report.hellos = {std::nullopt, hello_};
    report.gpu_faults = faults_;
    report.exit_code = code();
    report.text = text;
    check(!report_json(report).empty() && !report_html(report).empty());
  }

  TimePoint now_{std::chrono::hours(1'000)};
  Plan plan_;
  JobState state_;
  AgentConversation conversation_;
  LineTagger tagger_;
  std::optional<Hello> hello_;
  std::optional<Goodbye> goodbye_;
  std::vector<HostGpuFault> faults_;
  Milliseconds offset_{0};
  std::size_t held_ = 0;
  std::size_t input_ = 0;
  std::size_t log_lines_ = 0;
  bool ordered_ = false;
  bool relays_ = false;
  bool closed_ = false;
  bool broken_ = false;
};

std::uint32_t take_number(std::string_view& input, std::size_t bytes) {
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < bytes && i < input.size(); ++i) {
    number |= static_cast<std::uint32_t>(static_cast<unsigned char>(input[i])) << (8 * i);
  }
  input.remove_prefix(std::min(bytes, input.size()));
  return number;
}

std::string_view take_bytes(std::string_view& input) {
  const std::size_t length = std::min<std::size_t>(take_number(input, 2), input.size());
  const std::string_view bytes = input.substr(0, length);
  input.remove_prefix(length);
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  Job job;
  while (!input.empty()) {
    const char what = input.front();
    input.remove_prefix(1);
    if (what == 'F') {
      const auto type = static_cast<FrameType>(take_number(input, 1));
      job.receive(encode_frame(type, take_bytes(input)));
    } else if (what == 'B') {
      job.receive(take_bytes(input));
    } else if (what == 'M') {
      job.receive(u32_payload(take_number(input, 2) << 20) + "\x09");
    } else {
      job.do_as_launcher(what);
    }
  }
  job.end();
  return 0;
}
