// SPDX-License-Identifier: Apache-2.0
// Which rank is named when a world breaks: an engine at the end of a channel whose other ends are
// played by the test.
#include "collectives/runtime/engine.h"

#include <thread>

#include "collectives/control/messages.h"
#include "tests/support/catch.h"
#include "tests/unit/collectives/runtime/played_channel.h"

using namespace hora;
using namespace hora::collectives;
using hora::test::Batch;
using hora::test::complaint;
using hora::test::end_of;
using hora::test::PlayedChannel;

namespace {

struct Played {
  World world;
  Observer observer;
  PlayedChannel* channel = nullptr;
  std::unique_ptr<Engine> engine;

  Played(int rank, int size) {
    world = test::world_of(rank, size);
    auto made = std::make_unique<PlayedChannel>();
    channel = made.get();
    engine = std::make_unique<Engine>(world, std::move(made), observer);
    REQUIRE(engine->set_up());
  }
  void run() {
    while (!engine->ended()) engine->step(Deadline::max());
    engine->linger();
  }
  // The reason that the engine gives for refusing new work, once it has ended.
  std::string reason() {
    std::string text;
    const OperationPtr operation = make_operation();
    engine->queue().push({&operation, 1}, text);
    return text;
  }
};

std::string abort_text(const std::vector<std::string>& sent) {
  for (const std::string& each : sent) {
    if (kind_of(each) == ControlMessage::kAbort) return each.substr(1);
  }
  return {};
}

}  // namespace

TEST_CASE("rank 0 names the rank that was lost, in whatever order complaints and ends arrive") {
  const Incoming hearsay = complaint(1, "allreduce 'x': its neighbour hung up");
  const std::vector<std::vector<Batch>> orders{
      {{end_of(2)}, {hearsay}, {end_of(1)}, {end_of(3)}},
      {{hearsay, end_of(2)}, {end_of(1)}, {end_of(3)}},
      {{hearsay}, {end_of(2)}, {end_of(1)}, {end_of(3)}},
      {{hearsay, end_of(1)}, {end_of(2)}, {end_of(3)}},
      {{hearsay, end_of(1), complaint(3, "also"), end_of(3)}, {end_of(2)}},
  };
  for (const auto& order : orders) {
    Played rank0(0, 4);
    for (const Batch& batch : order) rank0.channel->play(batch);
    rank0.run();
    CHECK(rank0.reason() == "rank 2 (host2) is gone: the connection was closed");
    for (int rank : {1, 3}) CHECK(abort_text(rank0.channel->sent_to(rank)) == rank0.reason());
  }
}

TEST_CASE("rank 0 believes a complaint when no rank turns out to be lost") {
  Played rank0(0, 3);
  rank0.channel->play({complaint(1, "allreduce 'x': not enough memory"), end_of(1)});
  std::thread peer([&] {
    if (rank0.channel->wait_for(ControlMessage::kAbort)) rank0.channel->play({end_of(2)});
  });
  rank0.run();
  peer.join();
  CHECK(rank0.reason() == "rank 1 (host1): allreduce 'x': not enough memory");
  CHECK(abort_text(rank0.channel->sent_to(1)) == rank0.reason());
}

TEST_CASE("a worker takes rank 0's word, also when the end of the connection is behind it") {
  Played worker(1, 3);
  worker.channel->play(
      {{0, false, control_message(ControlMessage::kAbort, "rank 2 (x) is gone")}, end_of(0)});
  worker.run();
  CHECK(worker.reason() == "rank 2 (x) is gone");
}

TEST_CASE("a worker that rank 0 leaves without a word names rank 0") {
  Played worker(1, 3);
  worker.channel->play({end_of(0)});
  worker.run();
  CHECK(worker.reason() == "rank 0 (host0) is gone: the connection was closed");
}

TEST_CASE("a worker that cannot go on says so before it hangs up") {
  Played worker(2, 3);
  worker.channel->play({{0, false, std::string(1, '\x7f')}});
  worker.run();
  CHECK(worker.channel->wait_for(ControlMessage::kBroken));
  CHECK(worker.reason() == "rank 2 (host2): rank 0 (host0) sent an unexpected control message");
}
