// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/shutdown.h"

#include <thread>

#include "tests/support/catch.h"
#include "tests/unit/collectives/runtime/engine_parts.h"

using namespace hora::collectives;

namespace {

using Ranks = std::vector<int>;

std::vector<std::int32_t> hosts_of(int hosts, int ranks_each) {
  std::vector<std::int32_t> numbers;
  for (int rank = 0; rank < hosts * ranks_each; ++rank) numbers.push_back(rank / ranks_each);
  return numbers;
}

}  // namespace

TEST_CASE("a leader keeps back what the ranks of its host say, and what comes from hosts below") {
  const auto hosts = hosts_of(70, 2);  // 32 and 64 have hosts below them
  CHECK(who_keeps_back({2}, {3}, hosts) == Ranks{2});
  CHECK(who_keeps_back({64}, {65}, hosts) == Ranks{64});
  CHECK(who_keeps_back({64}, {66, 67}, hosts) == Ranks{64});  // host 33
  CHECK(who_keeps_back({64}, {126}, hosts) == Ranks{64});     // host 63
  CHECK(who_keeps_back({64, 128}, {130, 67}, hosts) == Ranks{64, 128});
  CHECK(who_keeps_back({66, 64}, {67}, hosts) == Ranks{66, 64});
}

TEST_CASE("ranks by which nothing goes keep nothing back") {
  const auto hosts = hosts_of(70, 2);
  CHECK(who_keeps_back({}, {3}, hosts).empty());
  CHECK(who_keeps_back({2}, {2}, hosts).empty());    // it is missing itself
  CHECK(who_keeps_back({3}, {2}, hosts).empty());    // no leader
  CHECK(who_keeps_back({66}, {64}, hosts).empty());  // the other way round
  CHECK(who_keeps_back({64}, {128, 130}, hosts).empty());
  CHECK(who_keeps_back({2}, {5}, hosts).empty());
}

// How a world ends, on one rank whose other ends are played by the test. Which rank is named when
// it breaks: engine_test.cpp.

using namespace hora;
using namespace hora::collectives;
using test::BaseWithEnd;
using Texts = std::vector<std::string>;

namespace {

Incoming message(int rank, ControlMessage kind, const std::string& text = {}) {
  return {rank, false, control_message(kind, text)};
}

std::vector<ControlMessage> kinds(const std::vector<std::string>& messages) {
  std::vector<ControlMessage> all;
  for (const std::string& each : messages) all.push_back(kind_of(each));
  return all;
}

using Kinds = std::vector<ControlMessage>;

}  // namespace

TEST_CASE("shutdown: rank 0 lets no rank disconnect before all have finished") {
  BaseWithEnd rank0(0, 3);
  rank0.shutdown.note_finished(2);  // it was early
  rank0.channel->play({message(1, ControlMessage::kFinished)});
  rank0.shutdown.leave(1);
  CHECK(rank0.failed == Texts{"rank 1 (host1) has shut down"});
  for (int rank : {1, 2})
    CHECK(kinds(rank0.channel->sent_to(rank)) == Kinds{ControlMessage::kClose});
  CHECK(rank0.shutdown.ended());
  CHECK(rank0.channel->hung_up());
}

TEST_CASE("shutdown: a worker that leaves says that it has finished, and waits to be let go") {
  BaseWithEnd worker(1, 3);
  std::thread rank0([&] {
    if (worker.channel->wait_for(ControlMessage::kFinished)) {
      worker.channel->play({message(0, ControlMessage::kClose)});
    }
  });
  worker.shutdown.leave(2);
  rank0.join();
  CHECK(kinds(worker.channel->sent_to(0)) == Kinds{ControlMessage::kFinished});
  CHECK(worker.failed == Texts{"rank 2 (host2) has shut down"});
  CHECK(worker.channel->hung_up());
}

TEST_CASE("shutdown: a rank that is lost while all leave does not delay the others") {
  BaseWithEnd rank0(0, 3);
  rank0.channel->play({test::end_of(2)});
  rank0.shutdown.leave(1);
  CHECK(kinds(rank0.channel->sent_to(1)) == Kinds{ControlMessage::kAbort});
  CHECK(rank0.channel->sent_to(1).front().substr(1) ==
        "rank 2 (host2) is gone: the connection was closed");
}

TEST_CASE("shutdown: a worker that failed by itself does not wait for reports of others") {
  BaseWithEnd worker(1, 2);
  worker.channel->play({message(0, ControlMessage::kAbort, "rank 1 (host1): out of memory")});
  worker.shutdown.data_plane_failed("out of memory", Origin::kHere);
  CHECK(kinds(worker.channel->sent_to(0)) == Kinds{ControlMessage::kFailed});
  CHECK(worker.failed == Texts{"rank 1 (host1): out of memory"});
}

TEST_CASE("shutdown: a worker whose neighbour is lost takes rank 0's word before it complains") {
  BaseWithEnd worker(1, 3);
  worker.channel->play({message(0, ControlMessage::kAbort, "rank 2 is gone")});
  worker.shutdown.data_plane_failed("a neighbour hung up");
  CHECK(worker.channel->sent_to(0).empty());
  CHECK(worker.failed == Texts{"rank 2 is gone"});
}

TEST_CASE("shutdown: the first reason counts") {
  BaseWithEnd rank0(0, 2);
  rank0.shutdown.end_world("first");
  rank0.shutdown.end_world("second");
  CHECK(rank0.shutdown.text() == "first");
  CHECK(rank0.channel->sent_to(1).size() == 1);
  CHECK(rank0.failed == Texts{"first"});
}

TEST_CASE("shutdown: stop_now() ends a wait for others") {
  BaseWithEnd rank0(0, 3);
  std::thread stopper([&] { rank0.shutdown.stop_now("enough"); });
  rank0.shutdown.leave(0);  // no rank finishes
  stopper.join();
  CHECK(rank0.shutdown.interruption().stop_reason() == "enough");
  CHECK(rank0.pool.aborted());
}

TEST_CASE("shutdown: a wait of the ranks for each other that is too long names who is missing") {
  BaseWithEnd worker(1, 2);
  worker.world.settings.start_timeout = std::chrono::seconds(3);
  worker.shutdown.data_plane_failed(make_error(ErrorCode::kTimedOut, "waited"));
  REQUIRE(worker.failed.size() == 1);
  CHECK(worker.failed.front() ==
        "waited for 3 s (the limit is HOROVOD_GLOO_TIMEOUT_SECONDS):\n"
        "  rank 0 (host0) does not answer; it is stopped, hangs, or waits for another rank");
}

TEST_CASE("shutdown: rank 0 reads on until the others have hung up") {
  BaseWithEnd rank0(0, 2);
  rank0.shutdown.end_world("broken");
  rank0.channel->play({message(1, ControlMessage::kRequests), test::end_of(1)});
  rank0.shutdown.linger();
  CHECK(rank0.mailbox.gone_count() == 1);
  CHECK(rank0.mailbox.empty());
}

TEST_CASE("stall_monitor: ranks that show no sign of life end the world") {
  BaseWithEnd rank0(0, 2);
  rank0.world.rank_infos.front().stall_limit_s = 5;
  rank0.stalls.look(nullptr);
  CHECK_FALSE(rank0.shutdown.ended());
  rank0.shutdown.interrupt({1});
  rank0.stalls.look(nullptr);
  REQUIRE(rank0.failed.size() == 1);
  CHECK(rank0.failed.front() ==
        "stalled waiting, the limit is HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=5:\n"
        "  rank 1 (host1) does not answer; its process or its host is stopped");
}

TEST_CASE("stall_monitor: has a next check only while a rank waits") {
  BaseWithEnd rank0(0, 2);
  Coordinator coordinator(2);
  CHECK(rank0.stalls.next_check(nullptr) == Deadline::max());
  CHECK(rank0.stalls.next_check(&coordinator) == Deadline::max());
  coordinator.add(0, test::allreduce("x"), Clock::now());
  CHECK(rank0.stalls.next_check(&coordinator) < Deadline::max());
  rank0.stalls.look(&coordinator);
  CHECK_FALSE(rank0.shutdown.ended());
}

TEST_CASE("mailbox: messages come one by one, and the ends of connections are counted") {
  test::Base rank0(0, 3);
  rank0.channel->play({message(1, ControlMessage::kFinished), test::end_of(1)});
  rank0.mailbox.wait(Deadline::max());
  CHECK(rank0.mailbox.waiting().size() == 2);
  CHECK(kind_of(rank0.mailbox.take().bytes) == ControlMessage::kFinished);
  CHECK(is_failure_notice(rank0.mailbox.take()));
  CHECK(rank0.mailbox.empty());
  CHECK(rank0.mailbox.gone_count() == 1);
}
