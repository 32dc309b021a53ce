// SPDX-License-Identifier: Apache-2.0
// What a launcher takes from an agent, and what it does not: each lie is refused, with a word for
// it.
#include "launcher/protocol/agent_conversation.h"

#include <limits>

#include "launcher/protocol/messages.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher;

namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

RankExit exit_of(int rank) {
  RankExit exit;
  exit.rank = rank;
  return exit;
}

std::string numbers(std::initializer_list<std::uint32_t> values) {
  std::string bytes;
  for (const std::uint32_t value : values) append_u32(bytes, value);
  return bytes;
}

std::string output_of(std::uint32_t rank, int stream, const std::string& bytes) {
  return u32_payload(rank) + static_cast<char>(stream) + bytes;
}

// A conversation with the agent of a host that has ranks 2 and 3.
struct Talk {
  AgentConversation with;
  std::vector<AgentMessage> received;
  std::string wrong;  // with the first violation

  void say(FrameType type, std::string_view payload = {}) { receive(encode_frame(type, payload)); }

  void receive(const std::string& bytes) {
    with.feed(bytes);
    while (wrong.empty()) {
      auto message = with.next();
      if (!message) {
        wrong = message.error().message;
      } else if (message->has_value()) {
        received.push_back(std::move(**message));
      } else {
        return;
      }
    }
  }

  Talk& greeted() {
    say(FrameType::kHello, encode(Hello{}));
    return *this;
  }
  Talk& probed() {
    greeted();
    with.sent(Probe{{{1, {"10.0.0.1", "10.0.0.2"}, 80, "x"}}, 100});
    return *this;
  }
  Talk& fetching() {
    greeted();
    with.sent(FetchDelivery{"id", 10, "key", {{"node1", {"10.0.0.1"}, 80}}, 100});
    return *this;
  }
  Talk& offered() {
    greeted();
    with.sent(OfferTree{{"a", "b"}, {}, {}});
    return *this;
  }
  Talk& ordered() {
    greeted();
    HostOrder order;
    for (const int rank : {2, 3}) order.ranks.push_back({rank, rank - 2, {}, StdinSource::kNull});
    order.output_window_bytes = 1000;
    with.sent(order);
    return *this;
  }
  Talk& started() {
    ordered();
    say(FrameType::kReady);
    with.sent(StartRanks{});
    say(FrameType::kStarted, encode(Started{{{2, 20}, {3, 30}}, {}}));
    REQUIRE(wrong.empty());
    return *this;
  }
};

}  // namespace

TEST_CASE("a folder is answered once for each time that it was offered") {
  Talk talk;
  talk.offered();
  talk.say(FrameType::kTreeState, encode(TreeState{{"b"}}));
  CHECK(talk.wrong.empty());
  talk.say(FrameType::kTreeState, encode(TreeState{}));
  CHECK(talk.wrong == "state of a folder: out of turn");
}

TEST_CASE("a delivery is reported once for each time that it was asked for") {
  Talk talk;
  talk.fetching();
  const std::string gone = encode(DeliveryReport{"id", false, 0, {"refused"}});
  talk.say(FrameType::kDelivered, gone);
  CHECK(talk.wrong.empty());
  talk.with.sent(KeepDelivery{"id", "key"});
  talk.say(FrameType::kDelivered, encode(DeliveryReport{"id", true, 80, {}}));
  CHECK(talk.wrong.empty());
  talk.say(FrameType::kDelivered, gone);
  CHECK(talk.wrong == "delivery report: out of turn");
}

TEST_CASE("samples come once for each time that they were asked for, of ranks of the host") {
  RankSample one;
  one.rank = 2;
  one.counters = {.uses_runtime = true, .collectives = 7};
  RankSample other = one;
  other.rank = 3;
  const auto talk = [](const std::vector<RankSample>& samples, int asked = 1) {
    Talk talk;
    talk.started();
    for (int i = 0; i < asked; ++i) talk.with.sent(SampleRanks{});
    talk.say(FrameType::kSamples, encode(RankSamples{samples}));
    return talk;
  };
  const Talk good = talk({one, other});
  REQUIRE(good.wrong.empty());
  CHECK(std::get<RankSamples>(good.received.back()).ranks == std::vector{one, other});
  CHECK(talk({}).wrong.empty());
  CHECK(talk({}, 0).wrong == "samples: out of turn");
  CHECK(talk({one, one}).wrong == "samples: a rank twice");
  CHECK(talk(std::vector<RankSample>(100, one)).wrong.find("are the most") != std::string::npos);
  other.counters.collectives = -1;
  CHECK(talk({one, other}).wrong == "samples: 'collectives' is -1");
  other.counters.collectives = 0;
  other.counters.gpu_percent = 101;
  CHECK(talk({one, other}).wrong == "samples: 'gpu_percent' is 101");
  one.rank = 1;
  CHECK(talk({one}).wrong.starts_with("samples: "));
  // The longest that two ranks can have is let through.
  RankSample longest{2,
                     {true, kMostCounted, kMostCounted, kLongestUs, kLongestMs, kMostGpus, 100, 100,
                      kMostBytes, kMostBytes, kMostBytes},
                     std::string(kMostLastLine, 'x'),
                     kLongestMs,
                     kMostBytes};
  RankSample next = longest;
  next.rank = 3;
  CHECK(talk({longest, next}).wrong.empty());
}

TEST_CASE("a relay speaks when it was asked for, and within its limits") {
  const auto talk = [](std::initializer_list<Frame> frames) {
    Talk talk;
    talk.greeted();
    talk.with.sent(OpenRelay{"10.0.0.1"});
    for (const Frame& frame : frames) talk.say(frame.type, frame.payload);
    return talk;
  };
  const Frame port{FrameType::kRelayPort, numbers({4711})};
  const Frame data{FrameType::kRelayData, numbers({1}) + "GET"};
  const Talk good = talk({port, {FrameType::kRelayOpen, numbers({1})}, data});
  CHECK(good.wrong.empty());
  REQUIRE(good.received.size() == 4);
  CHECK(std::get<RelayPort>(good.received[1]).port == 4711);
  CHECK(std::get<RelayedBytes>(good.received[3]).bytes.view() == "GET");
  CHECK(talk({data}).wrong == "relayed bytes: out of turn");
  CHECK(talk({port, port}).wrong == "port of the relay: out of turn");
  CHECK(talk({{FrameType::kRelayPort, numbers({65'536})}}).wrong ==
        "port of the relay: 'port' is 65536");
  CHECK(talk({port, {FrameType::kRelayData, "x"}}).wrong == "relayed bytes: it ends early");
  CHECK(talk({port, {FrameType::kRelayData, std::string(kMostRelayed + 5, 'x')}})
            .wrong.find("are the most") != std::string::npos);
  Talk unasked;
  unasked.greeted();
  unasked.say(FrameType::kRelayPort, numbers({1}));
  CHECK(unasked.wrong == "port of the relay: out of turn");
}

TEST_CASE("a job from the hello to the goodbye") {
  Talk talk;
  talk.probed();
  talk.say(FrameType::kProbeResult, encode(ProbeResult{{{1, "10.0.0.1", true, "10.0.0.3", ""},
                                                        {1, "10.0.0.2", false, "", "refused"}}}));
  HostOrder order;
  order.ranks.push_back({2, 0, {}, StdinSource::kStream});
  order.output_window_bytes = 4;
  talk.with.sent(order);
  talk.say(FrameType::kHeartbeat);
  talk.say(FrameType::kGpuFault, encode(GpuFault{"0000:3b:00", 79, -1, 0, "", "fell off"}));
  talk.say(FrameType::kReady);
  talk.with.sent(StartRanks{});
  talk.say(FrameType::kStarted, encode(Started{{{2, 4711}}, {"rank 2: CPUs 0-3"}}));
  talk.say(FrameType::kProgress, numbers({1, 1, 0}));
  talk.say(FrameType::kOutput, output_of(2, 1, "abcd"));
  talk.with.sent(OutputTaken{3});
  talk.say(FrameType::kOutput, output_of(2, 2, "efg"));
  talk.with.sent(RankInput{2, "input"});
  talk.say(FrameType::kInputAck, numbers({2, 3}));
  talk.say(FrameType::kInputAck, numbers({2, 2}));
  talk.with.sent(DumpStacks{});
  StackReport stacks;
  stacks.processes.resize(1);
  stacks.processes[0].rank = 2;
  talk.say(FrameType::kStacks, encode(stacks));
  talk.with.sent(SuspendRanks{});
  talk.say(FrameType::kSuspend);
  for (const char stream : {'\1', '\2'}) talk.say(FrameType::kOutputEnd, u32_payload(2) + stream);
  talk.say(FrameType::kExit, encode(exit_of(2)));
  talk.say(FrameType::kLog, encode(LogLine{3, "a word"}));
  talk.say(FrameType::kGoodbye, encode(Goodbye{}));
  talk.receive("whatever comes behind it");
  REQUIRE(talk.wrong.empty());
  REQUIRE(talk.received.size() == 17);
  CHECK(std::get<RankOutput>(talk.received[6]).bytes.view() == "abcd");
  CHECK(std::get<InputTaken>(talk.received[8]).bytes == 3);
  CHECK(std::holds_alternative<Goodbye>(talk.received.back()));
  CHECK(talk.with.buffered() == 0);
}

TEST_CASE("frames out of turn, of unknown ranks, too long") {
  const std::string nothing;
  const std::string hello = encode(Hello{});
  const std::string a_lot(70'000, '\0');
  struct Lie {
    const char* what;
    Talk& (Talk::*stage)();
    FrameType type;
    std::string payload;
    const char* answer;
  };
  const std::vector<Lie> lies = {
      {"no hello first", nullptr, FrameType::kReady, nothing, "ready: out of turn"},
      {"a log before the hello", nullptr, FrameType::kLog, nothing, "log line: out of turn"},
      {"a second hello", &Talk::greeted, FrameType::kHello, hello, "hello: out of turn"},
      {"a probe result without a request", &Talk::greeted, FrameType::kProbeResult, nothing,
       "probe result: out of turn"},
      {"ready without an order", &Talk::greeted, FrameType::kReady, nothing, "ready: out of turn"},
      {"started without a start", &Talk::ordered, FrameType::kStarted, nothing,
       "started: out of turn"},
      {"started twice", &Talk::started, FrameType::kStarted, nothing, "started: out of turn"},
      {"an exit before the start", &Talk::ordered, FrameType::kExit, nothing,
       "exit of a rank: out of turn"},
      {"output before the start", &Talk::ordered, FrameType::kOutput, output_of(2, 1, "x"),
       "output: out of turn"},
      {"stacks without a request", &Talk::started, FrameType::kStacks, nothing,
       "stack report: out of turn"},
      {"a suspension without a request", &Talk::started, FrameType::kSuspend, nothing,
       "suspension: out of turn"},
      {"a GPU fault before the order", &Talk::greeted, FrameType::kGpuFault, nothing,
       "GPU fault: out of turn"},
      {"a delivery report without a request", &Talk::greeted, FrameType::kDelivered, nothing,
       "delivery report: out of turn"},
      {"a report of another delivery", &Talk::fetching, FrameType::kDelivered,
       encode(DeliveryReport{"other", true, 80, {}}),
       "delivery report: of parts that were not announced"},
      {"a report of more sources than there are", &Talk::fetching, FrameType::kDelivered,
       encode(DeliveryReport{"id", false, 0, {"a", "b"}}),
       "delivery report: of more sources than were announced"},
      {"a long delivery report", &Talk::fetching, FrameType::kDelivered, a_lot,
       "delivery report: 70000 bytes"},
      {"a state of a folder that was not offered", &Talk::greeted, FrameType::kTreeState, nothing,
       "state of a folder: out of turn"},
      {"a state of another folder", &Talk::offered, FrameType::kTreeState, encode(TreeState{{"c"}}),
       "state of a folder: it misses what the folder does not have"},
      {"a state that misses a part twice", &Talk::offered, FrameType::kTreeState,
       encode(TreeState{{"a", "a"}}), "state of a folder: it misses what the folder does not have"},
      {"a long state of a folder", &Talk::offered, FrameType::kTreeState, a_lot,
       "state of a folder: 70000 bytes"},
      {"a frame of the launcher", &Talk::greeted, FrameType::kOrder, nothing,
       "a frame of type 37, which no agent sends"},
      {"an unknown frame", &Talk::greeted, static_cast<FrameType>(99), nothing,
       "a frame of type 99, which no agent sends"},
      {"a long heartbeat", &Talk::greeted, FrameType::kHeartbeat, "x", "heartbeat: 1 bytes"},
      {"a long ready", &Talk::ordered, FrameType::kReady, a_lot, "ready: 70000 bytes"},
      {"a long log line", &Talk::greeted, FrameType::kLog, a_lot, "log line: 70000 bytes"},
      {"a long failure", &Talk::greeted, FrameType::kFailure, a_lot, "failure: 70000 bytes"},
      {"a long goodbye", &Talk::started, FrameType::kGoodbye, a_lot, "goodbye: 70000 bytes"},
      {"a long GPU fault", &Talk::ordered, FrameType::kGpuFault, a_lot, "GPU fault: 70000 bytes"},
      {"a long exit", &Talk::started, FrameType::kExit, a_lot, "exit of a rank: 70000 bytes"},
      {"a long progress", &Talk::started, FrameType::kProgress, a_lot, "progress: 70000 bytes"},
      {"a long started", &Talk::ordered, FrameType::kStarted, a_lot, "started: out of turn"},
      {"output without credit", &Talk::started, FrameType::kOutput,
       output_of(2, 1, std::string(1001, 'x')), "output: 1006 bytes, where 1005 are the most"},
      {"output of another host's rank", &Talk::started, FrameType::kOutput, output_of(0, 1, "x"),
       "output: of a rank that is not of this host"},
      {"no output", &Talk::started, FrameType::kOutput, output_of(2, 1, ""),
       "output: there is none"},
      {"output on a third stream", &Talk::started, FrameType::kOutput, output_of(2, 3, "x"),
       "output: 'stream' is 3"},
      {"half an output", &Talk::started, FrameType::kOutput, "\2", "output: it ends early"},
      {"the end of another host's stream", &Talk::started, FrameType::kOutputEnd,
       u32_payload(7) + '\1', "end of output: of a rank that is not of this host"},
      {"the end of no stream", &Talk::started, FrameType::kOutputEnd, u32_payload(2),
       "end of output: it ends early"},
      {"input that was never sent", &Talk::started, FrameType::kInputAck, numbers({2, 1}),
       "input acknowledgement: of more than was sent"},
      {"input of another host's rank", &Talk::started, FrameType::kInputAck, numbers({0, 0}),
       "input acknowledgement: of a rank that is not of this host"},
      {"progress of more ranks than there are", &Talk::started, FrameType::kProgress,
       numbers({3, 0, 0}), "progress: of more ranks than there are"},
      {"half a progress", &Talk::started, FrameType::kProgress, numbers({1, 1}),
       "progress: it ends early"},
      {"an exit of another host's rank", &Talk::started, FrameType::kExit, encode(exit_of(0)),
       "exit of a rank: of a rank that is not of this host"},
      {"a GPU fault of another host's rank", &Talk::started, FrameType::kGpuFault,
       encode(GpuFault{"x", 79, 1, 5, "", ""}), "GPU fault: of a rank that is not of this host"},
      {"a malformed exit", &Talk::started, FrameType::kExit, "\xa1\x9f", "exit of a rank: "},
  };
  for (const Lie& lie : lies) {
    INFO(lie.what);
    Talk talk;
    if (lie.stage != nullptr) (talk.*lie.stage)();
    const std::size_t before = talk.received.size();
    talk.say(lie.type, lie.payload);
    CHECK(talk.wrong.substr(0, std::string(lie.answer).size()) == lie.answer);
    CHECK(talk.received.size() == before);
  }
}

TEST_CASE("a frame that is too long is refused by its header") {
  Talk talk;
  talk.greeted();
  for (const auto type : {FrameType::kLog, FrameType::kFailure, FrameType::kGoodbye}) {
    Talk other = talk;
    other.receive(encode_frame(type, std::string(1u << 20, 'x')).substr(0, 5));
    CHECK(other.wrong.find("1048576 bytes, where") != std::string::npos);
  }
}

TEST_CASE("credit counts all output together, and comes back") {
  Talk talk;
  talk.started();
  for (int i = 0; i < 4; ++i)
    talk.say(FrameType::kOutput, output_of(2 + i % 2, 1, std::string(250, 'x')));
  REQUIRE(talk.wrong.empty());
  talk.with.sent(OutputTaken{100});
  SECTION("as much as that") {
    talk.say(FrameType::kOutput, output_of(3, 2, std::string(100, 'x')));
    CHECK(talk.wrong.empty());
  }
  SECTION("one byte more") {
    talk.say(FrameType::kOutput, output_of(3, 2, std::string(101, 'x')));
    CHECK(talk.wrong.find("output: 106 bytes") == 0);
  }
}

TEST_CASE("what comes once or so often") {
  Talk talk;
  talk.started();
  SECTION("exits") {
    for (int i = 0; i < 2; ++i) talk.say(FrameType::kExit, encode(exit_of(2)));
    CHECK(talk.wrong == "exit of a rank: twice");
  }
  SECTION("ends of streams") {
    for (int i = 0; i < 2; ++i) talk.say(FrameType::kOutputEnd, u32_payload(2) + '\2');
    CHECK(talk.wrong == "end of output: twice");
  }
  SECTION("nothing behind an end") {
    talk.say(FrameType::kOutputEnd, u32_payload(2) + '\1');
    talk.say(FrameType::kOutput, output_of(2, 2, "other"));
    talk.say(FrameType::kOutput, output_of(3, 1, "other"));
    CHECK(talk.wrong.empty());
    talk.say(FrameType::kOutput, output_of(2, 1, "x"));
    CHECK(talk.wrong == "output: behind its end");
  }
  SECTION("output behind the end of the ranks") {
    talk.say(FrameType::kExit, encode(exit_of(2)));
    talk.say(FrameType::kRanksGone);
    talk.say(FrameType::kOutput, output_of(2, 1, "last"));
    CHECK(talk.wrong.empty());
    CHECK(talk.with.last_words() == "output");
    talk.say(FrameType::kRanksGone);
    CHECK(talk.wrong == "end of the ranks: out of turn");
  }
  SECTION("log lines") {
    for (std::size_t i = 0; i < kMostLogLines; ++i) talk.say(FrameType::kLog, encode(LogLine{}));
    CHECK(talk.wrong.empty());
    talk.say(FrameType::kLog, encode(LogLine{}));
    CHECK(talk.wrong == "log line: out of turn");
  }
  SECTION("GPU faults") {
    for (std::size_t i = 0; i < kMostGpuFaults; ++i)
      talk.say(FrameType::kGpuFault, encode(GpuFault{}));
    CHECK(talk.wrong.empty());
    talk.say(FrameType::kGpuFault, encode(GpuFault{}));
    CHECK(talk.wrong == "GPU fault: out of turn");
  }
  SECTION("answers") {
    talk.with.sent(SuspendRanks{});
    talk.say(FrameType::kSuspend);
    CHECK(talk.wrong.empty());
    talk.say(FrameType::kSuspend);
    CHECK(talk.wrong == "suspension: out of turn");
  }
  SECTION("input is acknowledged once") {
    talk.with.sent(RankInput{2, "abc"});
    talk.say(FrameType::kInputAck, numbers({2, 2}));
    CHECK(talk.wrong.empty());
    talk.say(FrameType::kInputAck, numbers({2, 2}));
    CHECK(talk.wrong == "input acknowledgement: of more than was sent");
  }
}

TEST_CASE("a probe's answers are those to its questions") {
  Talk talk;
  talk.probed();
  ProbeResult result{{{1, "10.0.0.1", true, "10.0.0.3", ""}, {1, "10.0.0.2", true, "", ""}}};
  SECTION("as asked") {
    talk.say(FrameType::kProbeResult, encode(result));
    CHECK(talk.wrong.empty());
    return;
  }
  SECTION("another address") { result.answers[1].address = "10.0.0.9"; }
  SECTION("another host") { result.answers[0].host_index = 0; }
  SECTION("one too few") { result.answers.pop_back(); }
  SECTION("one too many") { result.answers.push_back(result.answers[0]); }
  SECTION("from nowhere") { result.answers[0].local_address = "all over"; }
  talk.say(FrameType::kProbeResult, encode(result));
  CHECK(talk.wrong.find("probe result: ") == 0);
}

TEST_CASE("started: ranks of this host, each once") {
  Talk talk;
  talk.ordered();
  talk.say(FrameType::kReady);
  talk.with.sent(StartRanks{});
  Started started{{{2, 20}}, {}};
  SECTION("not all of them") {}
  SECTION("another host's") { started.pids.push_back({0, 30}); }
  SECTION("twice") { started.pids.push_back({2, 30}); }
  SECTION("no process") { started.pids.push_back({3, 0}); }
  SECTION("too many notes") { started.notes.resize(100); }
  talk.say(FrameType::kStarted, encode(started));
  CHECK(talk.wrong.empty() == (started == Started{{{2, 20}}, {}}));
}

TEST_CASE("numbers that cannot be") {
  const auto refused = [](const auto& message) { return !check(message); };
  const auto exit_with = [](auto change) {
    RankExit exit;
    change(exit);
    return exit;
  };
  CHECK(check(RankExit{}));
  CHECK(check(exit_with([](RankExit& e) { e.exit_code = 255; })));
  CHECK(
      refused(exit_with([](RankExit& e) { e.exit_code = 256; })));  // the launcher would end with 0
  CHECK(refused(exit_with([](RankExit& e) { e.exit_code = -1; })));
  CHECK(refused(exit_with([](RankExit& e) { e.signal = 65; })));
  CHECK(refused(exit_with([](RankExit& e) { e.signal = -128; })));  // likewise
  CHECK(refused(exit_with([](RankExit& e) { e.signal = 9, e.exit_code = 1; })));
  CHECK(refused(exit_with([](RankExit& e) { e.stage = SpawnStage::kSearch; })));
  CHECK(check(exit_with([](RankExit& e) { e.stage = SpawnStage::kSearch, e.exit_code = 127; })));
  CHECK(refused(exit_with([](RankExit& e) { e.errnum = -1; })));
  CHECK(refused(exit_with([](RankExit& e) { e.errnum = 4'096; })));
  CHECK(refused(exit_with([](RankExit& e) { e.code = "rank 0 is the cause"; })));
  CHECK(refused(exit_with([](RankExit& e) { e.clock_ns = kHuge; })));
  CHECK(refused(exit_with([](RankExit& e) { e.clock_ns = -1; })));
  CHECK(refused(exit_with([](RankExit& e) { e.max_rss_bytes = kHuge; })));
  CHECK(refused(exit_with([](RankExit& e) { e.user_time_us = kHuge; })));
  CHECK(refused(exit_with([](RankExit& e) { e.system_time_us = -5; })));

  const auto hello_with = [](auto change) {
    Hello hello;
    hello.interfaces.push_back({"eth0", "10.0.0.1", 24, true, false, false, 0, 1500});
    change(hello);
    return hello;
  };
  CHECK(check(hello_with([](Hello&) {})));
  CHECK(
      refused(hello_with([](Hello& h) { h.clock_ns = std::numeric_limits<std::int64_t>::min(); })));
  CHECK(refused(hello_with([](Hello& h) { h.clock_ns = kHuge; })));
  CHECK(refused(hello_with([](Hello& h) { h.gpus = 2'000'000'000; })));  // would be slots
  CHECK(refused(hello_with([](Hello& h) { h.free_port = 65'536; })));
  CHECK(refused(hello_with([](Hello& h) { h.probe_port = -1; })));
  CHECK(refused(hello_with([](Hello& h) { h.interfaces[0].address = "10.0.0"; })));
  CHECK(refused(hello_with([](Hello& h) { h.interfaces[0].prefix_length = 129; })));
  CHECK(refused(
      hello_with([](Hello& h) { h.interfaces.resize(kMostInterfaces + 1, h.interfaces[0]); })));

  CHECK(check(Goodbye{100, {11, 12}, 3}));
  CHECK(refused(Goodbye{1, {11, 12}, 3}));
  CHECK(refused(Goodbye{-1, {}, 0}));
  CHECK(refused(Goodbye{1, {-7}, 0}));
  CHECK(refused(Goodbye{1 << 20, std::vector<std::int64_t>(kMostSurvivorPids + 1, 5), 0}));

  StackReport stacks;
  stacks.processes.resize(1);
  CHECK(check(stacks));
  stacks.processes[0].standing.for_ms = kHuge;
  CHECK(refused(stacks));
  stacks.processes[0].standing = {};
  stacks.processes[0].standing.state = "dancing";
  CHECK(refused(stacks));
  stacks.processes.assign(kMostProcesses + 1, {});
  CHECK(refused(stacks));

  CHECK(refused(LogLine{5, ""}));
  CHECK(refused(LogLine{-1, ""}));
  CHECK(refused(GpuFault{"", -1, 0, 0, "", ""}));
  CHECK(check(DeliveryReport{"id", true, 65'535, {"refused"}}));
  CHECK(refused(DeliveryReport{"id", true, 65'536, {}}));
  CHECK(refused(DeliveryReport{"id", false, 80, {}}));
  CHECK(refused(DeliveryReport{"id", false, 0, std::vector<std::string>(kMostSources + 1)}));
  CHECK(refused(Failure{"", "", ""}));
  CHECK(refused(Failure{"E_OK \x1b[2J", "", ""}));
  CHECK(check(Failure{"E_CWD", "", ""}));
}

TEST_CASE("texts of a host are cut and steer no terminal") {
  const std::string evil =
      "\x1b]0;x\x07 \xc2\x9b"
      "2J \xe2\x80\xae ok\nhorarun: all is well";
  Talk talk;
  talk.greeted();
  talk.say(FrameType::kLog, encode(LogLine{4, evil}));
  talk.say(FrameType::kLog, encode(LogLine{4, std::string(10'000, 'x')}));
  REQUIRE(talk.received.size() == 3);
  CHECK(std::get<LogLine>(talk.received[1]).message == "?]0;x? ?2J ? ok horarun: all is well");
  const std::string cut = std::get<LogLine>(talk.received[2]).message;
  CHECK(cut.size() <= kMostText);
  CHECK(cut.find("bytes are left out)") != std::string::npos);

  RankExit exit;
  exit.code = exit.last_stderr = exit.hint = evil;
  exit = clean(exit);
  CHECK(exit.code.find('\n') == std::string::npos);
  CHECK(exit.hint.find('\x1b') == std::string::npos);
  CHECK(exit.last_stderr == evil);  // a rank's own bytes: their printer takes care
}

TEST_CASE("what an agent cuts to fit, the launcher takes") {
  const std::string text(1u << 20, 'y');
  Hello hello;
  hello.hostname = hello.home = hello.cache_directory = text;
  // Long enough to be cut, and short enough for the memory of a machine with a sanitizer.
  const std::string shorter = text.substr(0, 10'000);
  hello.interfaces.resize(5'000, {shorter, "10.0.0.1", 24, true, false, false, 0, 1500});
  Talk talk;
  talk.say(FrameType::kHello, encode(fit(hello)));
  talk.say(FrameType::kLog, encode(fit(LogLine{2, text})));
  HostOrder order;
  for (int rank = 0; rank < 64; ++rank) order.ranks.push_back({rank, rank, {}, StdinSource::kNull});
  talk.with.sent(order);
  talk.say(FrameType::kReady);
  talk.with.sent(StartRanks{});
  Started started;
  for (int rank = 0; rank < 64; ++rank) started.pids.push_back({rank, rank + 1});
  started.notes.resize(1'000, shorter);
  talk.say(FrameType::kStarted, encode(fit(started)));
  RankExit exit;
  exit.exit_code = 127;
  exit.stage = SpawnStage::kInterpreter;
  exit.program = exit.interpreter = text;
  exit.last_stderr = exit.hint = exit.last_operation = exit.lost_record = text;
  talk.say(FrameType::kExit, encode(fit(exit)));
  talk.say(FrameType::kGpuFault, encode(fit(GpuFault{text, 79, 3, 1, text, text})));
  talk.with.sent(DumpStacks{});
  StackReport stacks;
  stacks.processes.resize(6'000);
  for (auto& process : stacks.processes) process.program = process.state = text.substr(0, 1000);
  for (int i = 0; i < 40; ++i) stacks.processes[static_cast<std::size_t>(i)].stacks = text;
  talk.say(FrameType::kStacks, encode(fit(stacks)));
  Goodbye goodbye;
  goodbye.survivors = 1'000;
  goodbye.survivor_pids.resize(1'000, 4'000'000);
  talk.say(FrameType::kGoodbye, encode(fit(goodbye)));
  REQUIRE(talk.wrong.empty());
  REQUIRE(talk.received.size() == 8);
  CHECK(std::get<StackReport>(talk.received[6]).processes[39].stacks.find("left out") !=
        std::string::npos);

  Talk failing;
  failing.say(FrameType::kFailure, encode(fit(Failure{"E_CWD", text, text})));
  CHECK(failing.wrong.empty());
}

TEST_CASE("a stack report of very many tiny parts") {
  Talk talk;
  talk.started();
  talk.with.sent(DumpStacks{});
  std::string bytes("\xa1\x49processes\x9a\x00\x08\x00\x00", 16);
  bytes.append(0x80000, '\xa0');
  talk.say(FrameType::kStacks, bytes);
  CHECK(talk.wrong == "stack report: it has too many parts");
}
