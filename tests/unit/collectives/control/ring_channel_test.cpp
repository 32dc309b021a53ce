// SPDX-License-Identifier: Apache-2.0
#include "collectives/control/ring_channel.h"

#include <sched.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "tests/support/catch.h"

using namespace hora;
using namespace hora::collectives;

namespace {

// The connections in addition to the rings: they carry only the ends that the test requests.
class Links final : public ControlChannel {
 public:
  void end(int rank) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_.push_back({rank, true, "closed"});
  }
  void send(int, std::string_view) override { FAIL("nothing is sent over the links"); }
  Status flush(int, Deadline) override { return Ok{}; }
  std::vector<Incoming> poll(Deadline) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(ended_, {});
  }
  void wake() override {}
  void hang_up() override {}
  std::vector<int> liveness_fds() const override { return {}; }

 private:
  std::mutex mutex_;
  std::vector<Incoming> ended_;
};

// A star of `size` ranks in one process.
struct Star {
  explicit Star(int size) {
    const std::size_t bytes = RingLayout{size}.bytes();
    std::vector<std::thread> threads;
    std::vector<std::int32_t> ranks;
    for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
    channels.resize(ranks.size());
    links.resize(ranks.size());
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        auto segment = Segment::open(ranks, rank, bytes,
                                     [&](const std::string& mine) { return meet(rank, mine); });
        if (!segment) return;
        auto own = std::make_unique<Links>();
        const auto at = static_cast<std::size_t>(rank);
        links[at] = own.get();
        channels[at] =
            std::make_unique<RingChannel>(std::move(own), std::move(*segment), rank, size, false);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& channel : channels) REQUIRE(channel != nullptr);
  }

  Result<std::vector<std::string>> meet(int rank, const std::string& mine) {
    std::unique_lock<std::mutex> lock(mutex);
    const std::uint64_t round = rounds;
    given.resize(channels.size());
    given[static_cast<std::size_t>(rank)] = mine;
    if (++came == channels.size()) {
      came = 0;
      ++rounds;
      result = given;
      changed.notify_all();
    }
    changed.wait(lock, [&] { return rounds > round; });
    return result;
  }

  std::vector<std::unique_ptr<RingChannel>> channels;
  std::vector<Links*> links;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> given;
  std::vector<std::string> result;
  std::size_t came = 0;
  std::uint64_t rounds = 0;
};

Deadline soon() { return Clock::now() + std::chrono::seconds(60); }

std::string next_message(RingChannel& channel, std::deque<Incoming>& inbox) {
  while (inbox.empty()) {
    for (Incoming& each : channel.poll(soon())) inbox.push_back(std::move(each));
  }
  std::string bytes = std::move(inbox.front().bytes);
  inbox.pop_front();
  return bytes;
}

}  // namespace

TEST_CASE("byte ring: what goes in comes out, whatever the portions") {
  auto memory = std::make_unique<ByteRing::Memory>();
  ByteRing writer;
  ByteRing reader;
  writer.attach(memory.get());
  reader.attach(memory.get());
  std::mt19937 random(1);
  std::string written;
  std::string read;
  while (written.size() < 1'000'000) {
    std::string portion(random() % 20'000, '\0');
    for (char& c : portion) c = static_cast<char>(random());
    const std::size_t count = writer.write(portion);
    CHECK(count <= portion.size());
    CHECK((count == portion.size()) ==
          (written.size() + portion.size() - read.size() <= ByteRing::kCapacity));
    written.append(portion, 0, count);
    if (random() % 3 == 0) reader.read([&](std::string_view bytes) { read.append(bytes); });
  }
  CHECK_FALSE(reader.take_writer_waits());
  writer.want_room();
  CHECK(reader.take_writer_waits());
  CHECK_FALSE(reader.take_writer_waits());
  reader.read([&](std::string_view bytes) { read.append(bytes); });
  CHECK(read == written);
  CHECK(reader.empty());
}

TEST_CASE("rings: messages of every size arrive in order, from all sides at once") {
  constexpr int kSize = 4;
  constexpr std::size_t kMessages = 300;
  Star star(kSize);
  const auto message = [](std::size_t i) {
    const std::size_t length = i % 50 == 7 ? 300'000 : i * 37 % 2000;
    return std::to_string(i) + std::string(length, static_cast<char>('a' + i % 26));
  };
  std::vector<std::string> problems(kSize);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([&, rank] {
      RingChannel& channel = *star.channels[static_cast<std::size_t>(rank)];
      std::vector<std::size_t> expected(kSize, 0);
      const std::size_t in_all = kMessages * (rank == 0 ? kSize - 1 : 1);
      std::size_t sent = 0;
      std::size_t received = 0;
      while (received < in_all || sent < kMessages) {
        if (sent < kMessages) {
          for (int to = rank == 0 ? 1 : 0; to < (rank == 0 ? kSize : 1); ++to) {
            channel.send(to, message(sent));
          }
          ++sent;
        }
        for (Incoming& each : channel.poll(sent < kMessages ? kNoWait : soon())) {
          if (each.bytes != message(expected[static_cast<std::size_t>(each.rank)]++)) {
            problems[static_cast<std::size_t>(rank)] = "a wrong message";
          }
          ++received;
        }
      }
      if (!channel.flush(-1, soon())) problems[static_cast<std::size_t>(rank)] = "no flush";
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& problem : problems) CHECK(problem == "");
}

TEST_CASE("rings: what a rank said before it was lost comes before its end, also when much") {
  Star star(2);
  RingChannel& coordinator = *star.channels[0];
  RingChannel& worker = *star.channels[1];
  std::deque<Incoming> inbox;
  worker.send(0, "last words");
  worker.send(0, std::string(20'000, 'x'));
  star.links[0]->end(1);
  coordinator.wake();  // as the guard does
  CHECK(next_message(coordinator, inbox) == "last words");
  CHECK(next_message(coordinator, inbox).size() == 20'000);
  while (inbox.empty()) {
    for (Incoming& each : coordinator.poll(soon())) inbox.push_back(std::move(each));
  }
  CHECK(inbox.front().gone);
  CHECK(inbox.front().rank == 1);
  // The other end does not read any more: neither sending nor flushing waits for it.
  for (int i = 0; i < 10; ++i) coordinator.send(1, std::string(30'000, 'y'));
  CHECK(coordinator.flush(-1, soon()));
}

TEST_CASE("rings: flush waits for a reader until its deadline") {
  Star star(2);
  RingChannel& worker = *star.channels[1];
  for (int i = 0; i < 10; ++i) worker.send(0, std::string(30'000, 'y'));
  const auto refused = worker.flush(0, Clock::now() + std::chrono::milliseconds(50));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == ErrorCode::kTimedOut);
  std::thread reader([&] {
    std::deque<Incoming> inbox;
    for (int i = 0; i < 10; ++i) next_message(*star.channels[0], inbox);
  });
  CHECK(worker.flush(0, soon()));
  reader.join();
}

TEST_CASE("waiters: the last one to park is woken, and none sleeps while a message waits") {
  Star star(2);
  RingChannel& coordinator = *star.channels[0];
  RingChannel& worker = *star.channels[1];
  CHECK(coordinator.park(Waiter::kThread));
  worker.send(0, "one");
  const std::uint32_t ticket = coordinator.ticket_of(Waiter::kCaller);
  CHECK_FALSE(coordinator.park(Waiter::kCaller));
  REQUIRE(coordinator.poll(kNoWait).size() == 1);
  CHECK(coordinator.park(Waiter::kCaller));
  std::thread sender([&] { worker.send(0, "two"); });
  coordinator.sleep(Waiter::kCaller, ticket, soon());
  sender.join();
  CHECK(coordinator.ticket_of(Waiter::kCaller) != ticket);
  coordinator.unpark();
  CHECK(coordinator.poll(kNoWait).size() == 1);
}

TEST_CASE(
    "waiters: an idle thread is rung when the sender sleeps, or has all sent, and not before") {
  Star star(2);
  RingChannel& coordinator = *star.channels[0];
  RingChannel& worker = *star.channels[1];
  const auto was_rung = [&](const std::function<void()>& action) {
    REQUIRE(coordinator.park(Waiter::kIdleThread));
    CHECK_FALSE(coordinator.thread_was_rung());
    const std::uint32_t ticket = coordinator.ticket_of(Waiter::kThread);
    worker.send(0, "one");
    CHECK_FALSE(coordinator.thread_was_rung());
    action();
    const bool rung = coordinator.ticket_of(Waiter::kThread) != ticket;
    CHECK(rung == coordinator.thread_was_rung());
    coordinator.unpark();
    REQUIRE(coordinator.poll(kNoWait).size() == 1);
    return rung;
  };
  CHECK(was_rung([&] { CHECK(worker.park(Waiter::kCaller)); }));
  worker.unpark();
  CHECK(was_rung([&] { CHECK(worker.flush(0, soon())); }));
  // An answer has come: the sender does not sleep.
  CHECK_FALSE(was_rung([&] {
    coordinator.send(1, "answer");
    CHECK_FALSE(worker.park(Waiter::kCaller));
  }));
}

// All ranks are this thread's, on the CPU on which each of them would be.
TEST_CASE("rings: with fewer cores than ranks, one leaves a core that has two more than another") {
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  if (CPU_COUNT(&before) < 2) return;  // nowhere to go
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &before)) cpus.push_back(cpu);
  }
  const auto go_to = [&](int cpu) {
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(cpu, &only);
    REQUIRE(sched_setaffinity(0, sizeof only, &only) == 0);
    REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
  };
  constexpr int kRounds = 50;
  int moved = 0;
  for (int round = 0; round < kRounds; ++round) {
    Star star(4);
    for (std::size_t rank = 0; rank < 4; ++rank) {
      go_to(rank == 0 ? cpus[1] : cpus[0]);
      star.channels[rank]->wake();
      for (int i = 0; i < 64; ++i) REQUIRE(star.channels[rank]->watch());
    }
    if (sched_getcpu() == cpus[1]) ++moved;
  }
  // The kernel, too, moves this thread at times.
  CHECK(moved > kRounds / 2);
}
