// SPDX-License-Identifier: Apache-2.0
// What one rank puts into a fast path whose other ranks are played by the test.
#include "collectives/runtime/fast_path_driver.h"

#include <array>
#include <cstring>
#include <functional>

#include "tests/support/catch.h"
#include "tests/unit/collectives/runtime/engine_parts.h"

using namespace hora;
using namespace hora::collectives;
using test::allreduce;

namespace {

// Polls once, and the other rank may post by then.
struct OneLook final : Waiters {
  std::function<void()> meanwhile;
  bool yields = false;

  std::uint32_t ticket_of(Waiter) const override { return 0; }
  bool gives_way() const override { return yields; }
  bool watch() override {
    if (meanwhile) meanwhile();
    return true;
  }
  bool park(Waiter) override { return false; }
  void unpark() override {}
  bool may_stay_parked() const override { return true; }
  bool thread_was_rung() const override { return false; }
  void sleep(Waiter, std::uint32_t, Deadline) override {}
  void ring(Waiter) override {}
  void set_driver(Waiter) override {}
};

// Of two ranks; the other one posts what the test says.
class PlayedFastPath final : public FastPath {
 public:
  std::uint64_t mine = kNothing;
  std::uint64_t theirs = kNothing;
  bool others_posted = false;
  bool waited_for = false;
  bool attentive = false;
  bool listening = false;
  int turns = 0;
  int looks = 0;
  std::size_t two_turns_from = 1000;
  mutable std::array<std::array<char, 256>, 2> places{};  // shared memory

  int size() const override { return 2; }
  std::size_t room() const override { return 256; }
  char* own_place(std::size_t) override { return places[1].data(); }
  char* place_of(int place, std::size_t) const override {
    return places[static_cast<std::size_t>(place)].data();
  }
  bool takes_two_turns(std::size_t bytes) const override { return bytes >= two_turns_from; }
  char* own_last_place(std::size_t) const override { return places[1].data(); }
  void post(std::uint64_t number) override {
    mine = number;
    posted_ = true;
  }
  bool posted() const override { return posted_; }
  bool decided() override {
    ++looks;
    return posted_ && others_posted;
  }
  bool has_posted(int rank) const override { return rank == 1 ? posted_ : others_posted; }
  std::uint64_t common() const override { return mine == theirs ? mine : kNothing; }
  void next() override {
    posted_ = others_posted = waited_for = false;
    ++turns;
  }
  void listen(bool value) override { listening = value; }
  bool called_upon() override { return waited_for; }
  bool has_work() override { return false; }
  void set_attentive(bool value) override { attentive = value; }

 private:
  bool posted_ = false;
};

struct Idle final : Backend {
  Progress execute(const Step&, std::uint64_t*, ErrorText&) noexcept override {
    return Progress::kDone;
  }
  Progress poll(std::uint64_t, ErrorText&) noexcept override { return Progress::kDone; }
  void abort() noexcept override {}
  void destroy() noexcept override {}
};

// Rank 1 of two that share a host; `x`, an allreduce of one float, was agreed on before.
struct Rank : test::BaseWithEnd {
  Idle backend;
  PlayedFastPath fast_path;
  Negotiator negotiator{{world, mailbox, sets, queue, observer, tuner, shutdown.interruption()}};
  StepRunner steps{{pool, queue, observer, tuner, stalls, shutdown}};
  FastPathDriver driver{
      {world, mailbox, sets, queue, observer, tuner, negotiator, steps, stalls, shutdown}};
  std::uint64_t number = 0;

  Rank() : BaseWithEnd(1, 2) {
    ProcessSet& set = sets.world();
    set.one_host = true;
    set.backends.push_back(
        {"within", Scope::kHost, Algorithm::kBackend, kAnyThread, BackendPtr(&backend)});
    Capability row;
    row.across_hosts = 0;
    set.table.push_back({"within", row});
    channel->put(fast_path);
    driver.set_up(set);
    Response agreed;
    agreed.agreed = allreduce("x");
    set.cache.learn(agreed, &agreed.agreed);
    number = set.cache.find(agreed.agreed);
  }

  OperationPtr prepare(const Request& request) {
    OperationPtr operation = make_operation();
    operation->name_hash = name_hash(request.process_set, request.name);
    operation->request = request;
    operation->input = operation->output = &value;
    operation->count = element_count(request.shape);
    queue.prepare({&operation, 1});
    return operation;
  }

  // Whether it is in the fast path.
  bool take(const OperationPtr& operation) {
    OperationPtr given = operation;
    return driver.take(given);
  }
  void others_post(std::uint64_t what) {
    fast_path.theirs = what;
    fast_path.others_posted = true;
    const float theirs = 41;
    std::memcpy(fast_path.places[0].data(), &theirs, sizeof theirs);
  }
};

// With `wide`, an average that takes two turns.
struct Wide : Rank {
  static constexpr int kCount = 40;
  Request request = allreduce("wide");
  std::vector<float> values = std::vector<float>(kCount, 3);
  std::vector<float> results = std::vector<float>(kCount);

  Wide() {
    request.shape = {kCount};
    request.reduce_op = HORA_AVERAGE;
    request.postscale = 4;
    Response agreed;
    agreed.agreed = request;
    sets.world().cache.learn(agreed, &agreed.agreed);
    number = sets.world().cache.find(request);
    fast_path.two_turns_from = kCount * sizeof(float);
  }
  OperationPtr prepare(const Request& request) {
    OperationPtr operation = Rank::prepare(request);
    operation->input = values.data();
    operation->output = results.data();
    return operation;
  }
  void put(std::size_t place, float value, int count) {
    for (int i = 0; i < count; ++i) {
      std::memcpy(fast_path.places[place].data() + static_cast<std::size_t>(i) * sizeof value,
                  &value, sizeof value);
    }
    fast_path.theirs = number;
    fast_path.others_posted = true;
  }
  void others_post_all() { put(0, 5, kCount); }
  // Rank 0's: 32 elements, which are whole cache lines, where this rank has posted. Its sum is
  // another one, to distinguish them.
  void others_post_share() { put(1, 100, 32); }
  void check_results() {
    for (int i = 0; i < kCount; ++i) {
      CAPTURE(i);
      CHECK(results[static_cast<std::size_t>(i)] == (i < 32 ? 100 : 4 * (3 + 5) / 2));
    }
    std::fill(results.begin(), results.end(), 0.0F);
  }
};

}  // namespace

TEST_CASE("fast_path_driver: what all have agreed on before goes without rank 0") {
  Rank rank;
  const OperationPtr x = rank.submit(allreduce("x"));
  REQUIRE(rank.take(x));
  CHECK(rank.driver.operation() == x.get());
  CHECK(rank.fast_path.mine == rank.number);
  CHECK(rank.driver.due() < Deadline::max());
  CHECK_FALSE(rank.driver.poll());
  CHECK_FALSE(x->done());
  rank.others_post(rank.number);
  CHECK(rank.driver.poll());
  REQUIRE(x->done());
  CHECK(x->status == HORA_OK);
  CHECK(rank.value == 42);
  CHECK(rank.is_free("x"));
  CHECK(rank.driver.runs() == 1);
  CHECK(rank.driver.due() == Deadline::max());
  CHECK(rank.channel->sent_to(0).empty());
}

TEST_CASE("fast_path_driver: what does not belong there is left alone") {
  Rank rank;
  CHECK_FALSE(rank.take(rank.submit(allreduce("never agreed on"))));
  Request large = allreduce("x");
  large.shape = {1000};
  CHECK_FALSE(rank.take(rank.submit(large)));
  CHECK(rank.fast_path.turns == 0);
  CHECK(rank.driver.operation() == nullptr);
}

TEST_CASE("fast_path_driver: ranks that post different things take theirs to rank 0") {
  Rank rank;
  const OperationPtr x = rank.submit(allreduce("x"));
  REQUIRE(rank.take(x));
  rank.others_post(rank.number + 1);
  rank.driver.poll();
  CHECK_FALSE(x->done());
  CHECK(rank.driver.operation() == nullptr);
  CHECK(rank.driver.runs() == 0);
  REQUIRE(rank.channel->sent_to(0).size() == 1);
  CHECK(kind_of(rank.channel->sent_to(0).front()) == ControlMessage::kRequests);
  CHECK(rank.sets.world().pending.find(x->name_hash, "x") == x.get());
  rank.driver.poll();
  CHECK(rank.fast_path.listening);  // the others are not to wait for this rank
}

TEST_CASE("fast_path_driver: after a failed attempt the next operation does not try") {
  Rank rank;
  REQUIRE(rank.take(rank.submit(allreduce("x"))));
  rank.others_post(rank.number + 1);
  rank.driver.poll();
  for (const OperationPtr& each : rank.sets.world().pending.take_all()) {
    rank.queue.finish(each, HORA_OK, {});
  }
  const OperationPtr again = rank.submit(allreduce("x"));
  CHECK_FALSE(rank.take(again));
  CHECK(rank.take(again));
}

TEST_CASE("fast_path_driver: a caller gets at once what the other ranks post while it polls") {
  Rank rank;
  OneLook waiters;
  const OperationPtr x = rank.prepare(allreduce("x"));
  // The rank takes part from its first step on.
  CHECK(rank.driver.run_at_once(x, waiters) == AtOnce::kNotBegun);
  rank.driver.poll();
  for (const float expected : {42.0F, 83.0F}) {
    waiters.meanwhile = [&] { rank.others_post(rank.number); };
    REQUIRE(rank.driver.run_at_once(x, waiters) == AtOnce::kDone);
    CHECK(x->done());
    CHECK(rank.value == expected);
  }
  CHECK(rank.driver.runs() == 2);
  CHECK(rank.driver.operation() == nullptr);
  // Another agreement on that name.
  Response other;
  other.agreed = allreduce("x");
  other.agreed.shape = {2};
  rank.sets.world().cache.learn(other, &other.agreed);
  CHECK(rank.driver.run_at_once(x, waiters) == AtOnce::kNotBegun);
  CHECK(rank.fast_path.turns == 2);
}

TEST_CASE("fast_path_driver: a caller whose core others need yields it after one look") {
  Rank rank;
  OneLook waiters;
  waiters.yields = GENERATE(false, true);
  rank.driver.poll();
  int looks = 0;
  waiters.meanwhile = [&] { looks = rank.fast_path.looks; };
  rank.fast_path.looks = 0;
  rank.driver.run_at_once(rank.prepare(allreduce("x")), waiters);
  CHECK((looks == 1) == waiters.yields);
}

TEST_CASE("fast_path_driver: what a caller does not get at once is as any other") {
  Rank rank;
  OneLook waiters;
  rank.driver.poll();
  const OperationPtr x = rank.prepare(allreduce("x"));
  SECTION("the other rank is late") {
    REQUIRE(rank.driver.run_at_once(x, waiters) == AtOnce::kUnderWay);
    CHECK(rank.driver.operation() == x.get());
    CHECK(rank.driver.due() < Deadline::max());
    rank.queue.keep_in_flight(*x);
    rank.others_post(rank.number);
    CHECK(rank.driver.poll());
    CHECK(rank.value == 42);
  }
  SECTION("the other rank has something else in mind") {
    waiters.meanwhile = [&] { rank.others_post(rank.number + 1); };
    REQUIRE(rank.driver.run_at_once(x, waiters) == AtOnce::kUnderWay);
    rank.queue.keep_in_flight(*x);
    rank.driver.poll();
    CHECK(rank.driver.operation() == nullptr);
    REQUIRE(rank.channel->sent_to(0).size() == 1);
    // And now it waits for rank 0, and meanwhile nothing goes this way.
    CHECK(rank.driver.run_at_once(rank.prepare(allreduce("x")), waiters) == AtOnce::kNotBegun);
  }
}

TEST_CASE("fast_path_driver: a name that is run at once is in use") {
  Rank rank;
  const OperationPtr x = rank.prepare(allreduce("x"));
  REQUIRE(rank.queue.begin_alone(*x));
  CHECK_FALSE(rank.is_free("x"));
  rank.queue.end_alone();
  const OperationPtr y = rank.submit(allreduce("y"));
  CHECK_FALSE(rank.queue.begin_alone(*x));  // not together with another
  rank.queue.finish(y, HORA_OK, {});
  CHECK(rank.queue.begin_alone(*x));
  rank.queue.keep_in_flight(*x);
  CHECK_FALSE(rank.is_free("x"));
  rank.queue.finish(x, HORA_OK, {});
  CHECK(rank.is_free("x"));
}

TEST_CASE("fast_path_driver: a rank that has nothing posts so when others wait") {
  Rank rank;
  CHECK_FALSE(rank.driver.poll());
  CHECK(rank.fast_path.attentive);
  rank.fast_path.waited_for = true;
  rank.others_post(7);
  CHECK(rank.driver.poll());
  CHECK(rank.fast_path.mine == FastPath::kNothing);
  CHECK(rank.fast_path.turns == 1);
  CHECK(rank.channel->sent_to(0).empty());
}

TEST_CASE("fast_path_driver: what takes two turns is there when all have reduced their shares") {
  Wide rank;
  OneLook waiters;
  rank.driver.poll();
  OperationPtr wide = rank.prepare(rank.request);
  SECTION("one tensor") {}
  SECTION("several, across the ends of shares") {
    for (const auto& [begin, count] : {std::pair(0, 5), {5, 0}, {5, 15}, {20, 20}}) {
      wide->pieces.push_back({rank.values.data() + begin, rank.results.data() + begin, count, {}});
    }
  }
  SECTION("at once") {
    int turns = 0;
    waiters.meanwhile = [&] { ++turns == 1 ? rank.others_post_all() : rank.others_post_share(); };
    REQUIRE(rank.driver.run_at_once(wide, waiters) == AtOnce::kDone);
    CHECK(turns == 2);
    rank.check_results();
    CHECK(rank.driver.runs() == 1);
    return;
  }
  REQUIRE(rank.take(wide));
  rank.queue.keep_in_flight(*wide);
  rank.others_post_all();
  CHECK(rank.driver.poll());
  CHECK_FALSE(wide->done());
  CHECK(rank.driver.operation() == wide.get());
  CHECK(rank.fast_path.posted());
  CHECK(rank.fast_path.mine == rank.number);
  CHECK(rank.driver.runs() == 0);
  CHECK_FALSE(rank.driver.poll());
  rank.others_post_share();
  CHECK(rank.driver.poll());
  REQUIRE(wide->done());
  rank.check_results();
  CHECK(rank.driver.runs() == 1);
  CHECK(rank.fast_path.turns == 2);
  CHECK(rank.channel->sent_to(0).empty());
}

TEST_CASE("fast_path_driver: between its two turns an operation is as any other in flight") {
  Wide rank;
  OneLook waiters;
  rank.driver.poll();
  const OperationPtr wide = rank.prepare(rank.request);
  waiters.meanwhile = [&] {
    if (!rank.fast_path.others_posted && rank.fast_path.turns == 0) rank.others_post_all();
  };
  REQUIRE(rank.driver.run_at_once(wide, waiters) == AtOnce::kUnderWay);
  rank.queue.keep_in_flight(*wide);
  CHECK(rank.driver.operation() == wide.get());
  CHECK(rank.driver.due() < Deadline::max());
  CHECK_FALSE(rank.take(rank.submit(allreduce("x"))));
  SECTION("the share of the other rank comes") {
    rank.others_post_share();
    CHECK(rank.driver.poll());
    rank.check_results();
    // And again, from the first turn on.
    rank.fast_path.turns = 0;
    REQUIRE(rank.driver.run_at_once(wide, waiters) == AtOnce::kUnderWay);
    rank.queue.keep_in_flight(*wide);
    rank.others_post_share();
    CHECK(rank.driver.poll());
    rank.check_results();
  }
  SECTION("the world ends") {
    rank.shutdown.end_world("over");
    CHECK_FALSE(rank.driver.poll());
    CHECK(rank.driver.take_back().get() == wide.get());
    CHECK_FALSE(wide->done());
  }
  SECTION("a join waits for its end") {
    Request join;
    join.action = Action::kJoin;
    join.name = "join";
    std::vector<OperationPtr> submitted{rank.submit(join)};
    rank.driver.hold_join_back(submitted);
    CHECK(submitted.empty());
    CHECK_FALSE(rank.driver.poll());
    CHECK(rank.channel->sent_to(0).empty());
    rank.others_post_share();
    CHECK(rank.driver.poll());
    CHECK(wide->done());
    CHECK(rank.channel->sent_to(0).size() == 1);
  }
}

TEST_CASE("fast_path_driver: ranks that disagree in the first turn do not reduce shares") {
  Wide rank;
  const OperationPtr wide = rank.submit(rank.request);
  REQUIRE(rank.take(wide));
  rank.others_post(rank.number + 1);
  rank.driver.poll();
  CHECK_FALSE(wide->done());
  CHECK(rank.fast_path.turns == 1);
  CHECK(rank.driver.operation() == nullptr);
  CHECK(rank.channel->sent_to(0).size() == 1);
}

TEST_CASE("fast_path_driver: messages of leaders make no sense within a host") {
  Rank rank;
  CHECK_FALSE(rank.driver.handle_posted(0, "\x01"));
  CHECK_FALSE(rank.driver.handle_call("\x01"));
  Request shutdown;
  rank.driver.note_turn(shutdown);
  CHECK(shutdown.shape.empty());
}

TEST_CASE("fast_path_driver: nothing moves once the world has ended") {
  Rank rank;
  REQUIRE(rank.take(rank.submit(allreduce("x"))));
  rank.shutdown.end_world("over");
  rank.others_post(rank.number);
  CHECK_FALSE(rank.driver.poll());
  CHECK_FALSE(rank.fast_path.attentive);
  CHECK(rank.driver.take_back() != nullptr);
  CHECK(rank.driver.operation() == nullptr);
}
