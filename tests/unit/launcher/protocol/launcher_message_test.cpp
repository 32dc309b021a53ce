// SPDX-License-Identifier: Apache-2.0
#include "launcher/protocol/launcher_message.h"

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
  auto message = read_launcher_frame({type, std::move(payload)});
  REQUIRE(message);
  REQUIRE(std::holds_alternative<Message>(*message));
  return std::get<Message>(std::move(*message));
}

std::string problem(FrameType type, std::string payload) {
  const auto message = read_launcher_frame({type, std::move(payload)});
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
  CHECK(input.bytes() == "abc");
  CHECK(read<RankInput>(FrameType::kInput, numbers({5})).bytes().empty());
}

TEST_CASE("launcher message: frames without a payload, and those of a delivery") {
  read<LauncherAlive>(FrameType::kHeartbeat, "");
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
    CHECK(problem(type, "abc").find("a malformed frame of type ") == 0);
  }
  // The first number is there, the second is not.
  CHECK(problem(FrameType::kEndRank, numbers({1})) == "a malformed frame of type 47");
  CHECK(problem(FrameType::kSignal, numbers({0})).find("malformed") != std::string::npos);
  CHECK(problem(FrameType::kTerminate, numbers({1, 65})).find("malformed") != std::string::npos);
  CHECK(problem(FrameType::kSignal, numbers({65})).find("malformed") != std::string::npos);
  CHECK(problem(FrameType::kSignalRank, numbers({1, 65})).find("malformed") != std::string::npos);
}
