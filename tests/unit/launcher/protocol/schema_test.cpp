// SPDX-License-Identifier: Apache-2.0
#include "launcher/protocol/messages.h"
#include "tests/support/catch.h"

using namespace hora::launcher;
using hora::Milliseconds;

namespace {

std::string numbers(std::initializer_list<std::uint32_t> values) {
  std::string payload;
  for (const std::uint32_t value : values) hora::append_u32(payload, value);
  return payload;
}

template <typename Message>
Message read(FrameType type, std::string payload) {
  Turns turns;
  turns.note_sent(FrameType::kHello);
  if (type == FrameType::kStart) turns.note_received(FrameType::kOrder);
  auto message = read_launcher_frame({type, std::move(payload)}, turns);
  REQUIRE(message);
  REQUIRE(std::holds_alternative<Message>(*message));
  return std::get<Message>(std::move(*message));
}

std::string problem(FrameType type, std::string payload) {
  Turns turns;
  turns.note_sent(FrameType::kHello);
  const auto message = read_launcher_frame({type, std::move(payload)}, turns);
  REQUIRE_FALSE(message);
  return message.error().message;
}

}  // namespace

TEST_CASE("launcher message: numbers in the order of the payload") {
  const auto end = read<TerminateRank>(FrameType::kEndRank, numbers({3, 250}));
  CHECK(end.rank == 3);
  CHECK(end.grace == Milliseconds(250));
  const auto signal = read<SignalRank>(FrameType::kSignalRank, numbers({7, 15}));
  CHECK(signal.rank == 7);
  CHECK(signal.signal == 15);
  CHECK(read<TerminateRanks>(FrameType::kTerminate, numbers({0})).grace == Milliseconds(0));
  CHECK(read<TerminateRanks>(FrameType::kTerminate, numbers({0})).signal == SIGTERM);
  const auto interrupt = read<TerminateRanks>(FrameType::kTerminate, numbers({100, 2}));
  CHECK(interrupt.grace == Milliseconds(100));
  CHECK(interrupt.signal == 2);
  CHECK(read<SignalRanks>(FrameType::kSignal, numbers({64})).signal == 64);
  CHECK(read<DumpStacks>(FrameType::kDump, numbers({100})).timeout == Milliseconds(100));
  CHECK(read<OutputTaken>(FrameType::kOutputAck, numbers({4'000'000'000u})).bytes ==
        4'000'000'000u);
  CHECK(read<RankInputEnd>(FrameType::kInputEnd, numbers({2})).rank == 2);
}

TEST_CASE("launcher message: input stands behind its rank") {
  const auto input = read<RankInput>(FrameType::kInput, numbers({5}) + "abc");
  CHECK(input.rank == 5);
  CHECK(input.bytes.view() == "abc");
  CHECK(read<RankInput>(FrameType::kInput, numbers({5})).bytes.empty());
}

TEST_CASE("launcher message: frames without a payload, and those of a delivery") {
  read<Heartbeat>(FrameType::kHeartbeat, "");
  read<StartRanks>(FrameType::kStart, "");
  read<ForgetDeliveries>(FrameType::kForget, "");
  CHECK(read<OfferTree>(FrameType::kTree, encode(OfferTree{{"a"}})).parts.size() == 1);
  CHECK(read<KeepDelivery>(FrameType::kKeep, encode(KeepDelivery{"id", "key"})).id == "id");
  CHECK(read<FetchDelivery>(FrameType::kFetch, encode(FetchDelivery{"id", 7, "", {}, 1}))
            .size_bytes == 7);
  read<SuspendRanks>(FrameType::kSuspend, "");
  read<ResumeRanks>(FrameType::kResume, "");
  for (const FrameType type :
       {FrameType::kPart, FrameType::kShipFile, FrameType::kData, FrameType::kDataEnd}) {
    CHECK(read<DeliveryFrame>(type, "xyz").frame == Frame{type, "xyz"});
  }
}

TEST_CASE("launcher message: an order and a probe survive their encoding") {
  HostOrder order;
  order.job_id = "j";
  order.argv = {"true"};
  CHECK(read<HostOrder>(FrameType::kOrder, encode(order)) == order);
  Probe probe;
  probe.timeout_ms = 7;
  CHECK(read<Probe>(FrameType::kProbe, encode(probe)) == probe);
  CHECK(problem(FrameType::kOrder, "nonsense").find("host order") == 0);
}

TEST_CASE("launcher message: what no launcher sends") {
  CHECK(problem(FrameType::kHello, "") == "a frame of type 1, which no launcher sends");
  CHECK(problem(static_cast<FrameType>(99), "").find("type 99") != std::string::npos);
  for (const FrameType type :
       {FrameType::kTerminate, FrameType::kEndRank, FrameType::kSignal, FrameType::kSignalRank,
        FrameType::kDump, FrameType::kOutputAck, FrameType::kInput, FrameType::kInputEnd}) {
    CHECK(problem(type, "abc").find(": it ends early") != std::string::npos);
  }
  // The first number is there, the second is not.
  CHECK(problem(FrameType::kEndRank, numbers({1})) == "end of one rank: it ends early");
  CHECK(problem(FrameType::kSignal, numbers({0})) == "signal: 'signal' is 0");
  CHECK(problem(FrameType::kTerminate, numbers({1, 65})) == "end of all ranks: 'signal' is 65");
  CHECK(problem(FrameType::kSignal, numbers({65})) == "signal: 'signal' is 65");
  CHECK(problem(FrameType::kSignalRank, numbers({1, 65})) == "signal to one rank: 'signal' is 65");
}

// --- turns ---------------------------------------------------------------------------------------

namespace {

// What an agent answers to a frame of the launcher, after these from the launcher and its own.
std::string answer(FrameType type, std::vector<FrameType> received,
                   std::vector<FrameType> sent = {}) {
  Turns turns;
  turns.note_sent(FrameType::kHello);
  for (const FrameType each : received) turns.note_received(each);
  for (const FrameType each : sent) turns.note_sent(each);
  // Whatever else is wrong with it is found later.
  const auto message = read_launcher_frame({type, numbers({1, 1})}, turns);
  return message ? "" : message.error().message;
}

const std::vector<FrameType> kNothing;
const std::vector<FrameType> kReady = {FrameType::kOrder};
const std::vector<FrameType> kRunning = {FrameType::kOrder, FrameType::kStart};

}  // namespace

TEST_CASE("message order: deliveries come before the order") {
  for (const FrameType delivery : {FrameType::kPart, FrameType::kShipFile, FrameType::kData,
                                   FrameType::kDataEnd, FrameType::kKeep, FrameType::kFetch}) {
    CHECK(answer(delivery, kNothing).find("after the order") == std::string::npos);
    CHECK(answer(delivery, kReady) == "a delivery after the order");
    CHECK(answer(delivery, kRunning) == "a delivery after the order");
  }
}

TEST_CASE("message order: one folder, one relay, and both before the order") {
  const std::string folder = "a second folder, or one after the order";
  const std::string relay = "a second relay, or one after the order";
  CHECK(answer(FrameType::kTree, kNothing) != folder);
  CHECK(answer(FrameType::kTree, {FrameType::kTree}) == folder);
  CHECK(answer(FrameType::kTree, kReady) == folder);
  CHECK(answer(FrameType::kRelay, {FrameType::kTree}).empty());
  CHECK(answer(FrameType::kRelay, {FrameType::kRelay}) == relay);
  CHECK(answer(FrameType::kRelay, kReady) == relay);
}

TEST_CASE("message order: probes come one after the other") {
  const std::string second = "a second probe before the first was answered";
  CHECK(answer(FrameType::kProbe, kNothing) != second);
  CHECK(answer(FrameType::kProbe, {FrameType::kProbe}) == second);
  CHECK(answer(FrameType::kProbe, {FrameType::kProbe}, {FrameType::kProbeResult}) != second);
}

TEST_CASE("message order: one order, and ranks start once by it") {
  CHECK(answer(FrameType::kOrder, kNothing) != "a second order");
  CHECK(answer(FrameType::kOrder, kReady) == "a second order");
  CHECK(answer(FrameType::kOrder, kRunning) == "a second order");
  CHECK(answer(FrameType::kStart, kNothing) == "a start without an order");
  CHECK(answer(FrameType::kStart, kReady).empty());
  CHECK(answer(FrameType::kStart, kRunning) == "a start without an order");
}

TEST_CASE("message order: what frames on the way may say comes at any time") {
  for (const auto& received : {kNothing, kReady, kRunning}) {
    for (const FrameType type :
         {FrameType::kHeartbeat, FrameType::kForget, FrameType::kEndRank, FrameType::kSignal,
          FrameType::kOutputAck, FrameType::kInput, FrameType::kTerminate}) {
      CHECK(answer(type, received).empty());
    }
  }
  CHECK(answer(FrameType::kRelayData, kRunning) == "relayed bytes: out of turn");
  CHECK(answer(FrameType::kRelayData, kRunning, {FrameType::kRelayPort}).empty());
  CHECK(answer(FrameType::kLeave, kRunning) == "order to leave: out of turn");
  CHECK(answer(FrameType::kLeave, kRunning, {FrameType::kGoodbye}).empty());
}
