// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/os/event_loop.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <future>
#include <thread>
#include <vector>

#include "rendezvous/os/fd.h"
#include "rendezvous/os/random.h"
#include "tests/support/catch.h"

using namespace hora::os;
using namespace std::chrono_literals;

namespace {

struct Ends {
  Fd read_end;
  Fd write_end;
};

Ends make_pipe() {
  std::array<int, 2> ends;
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

std::unique_ptr<EventLoop> make_loop() {
  auto loop = EventLoop::create();
  REQUIRE(loop);
  // A test that waits for what never comes ends here, and fails its checks.
  (*loop)->call_after(10s, [raw = loop->get()] { raw->stop(); });
  return std::move(*loop);
}

}  // namespace

TEST_CASE("timers fire in the order of their deadlines, equal ones as they were set") {
  auto loop = make_loop();
  const auto start = hora::Clock::now();
  std::string order;
  loop->call_at(start + 3ms, [&] { order += 'c'; });
  loop->call_at(start + 1ms, [&] { order += 'a'; });
  loop->call_at(start + 1ms, [&] { order += 'b'; });
  loop->call_at(start + 4ms, [&] { loop->stop(); });
  REQUIRE(loop->run());
  CHECK(order == "abc");
}

TEST_CASE("a timer of any deadline: the first one is due at once, the last one never") {
  auto loop = make_loop();
  std::promise<void> ran;
  auto when = ran.get_future();
  bool last_ran = false;
  loop->call_at(hora::Deadline::max(), [&] { last_ran = true; });
  loop->call_at(hora::Deadline::min(), [&] { ran.set_value(); });
  std::future_status seen{};
  std::thread watcher([&] {
    seen = when.wait_for(8s);
    loop->post([&] { loop->stop(); });
  });
  REQUIRE(loop->run());
  watcher.join();
  CHECK(seen == std::future_status::ready);
  CHECK_FALSE(last_ran);
}

TEST_CASE("a timer may cancel another that is due, and set itself again") {
  auto loop = make_loop();
  const auto start = hora::Clock::now();
  int rounds = 0;
  EventLoop::TimerId victim = 0;
  bool victim_fired = false;
  loop->call_at(start, [&] { loop->cancel(victim); });
  victim = loop->call_at(start, [&] { victim_fired = true; });
  std::function<void()> again = [&] {
    if (++rounds == 3)
      loop->stop();
    else
      loop->call_after(0ms, again);
  };
  loop->call_after(1ms, again);
  REQUIRE(loop->run());
  CHECK_FALSE(victim_fired);
  CHECK(rounds == 3);
  loop->cancel(victim);  // unknown by now: ignored
}

TEST_CASE("of thousands of timers, those that were cancelled stay silent, whatever their order") {
  auto loop = make_loop();
  const auto start = hora::Clock::now();
  constexpr int kTimers = 10'000;
  std::vector<int> fired(kTimers);
  std::vector<EventLoop::TimerId> ids;
  for (int k = 0; k < kTimers; ++k) {
    // Deadlines that differ from the order of setting, many of them alike.
    ids.push_back(loop->call_at(start + std::chrono::microseconds(k * 7919 % 100),
                                [&fired, k] { ++fired[static_cast<std::size_t>(k)]; }));
  }
  for (std::size_t k = 0; k < ids.size(); ++k) {
    if (k % 3 != 0) loop->cancel(ids[k]);
    if (k % 3 == 1) loop->cancel(ids[k]);  // for the second time
  }
  loop->call_at(start + 1ms, [&] {
    for (const EventLoop::TimerId id : ids) loop->cancel(id);  // all have fired or been cancelled
    loop->stop();
  });
  REQUIRE(loop->run());
  bool as_asked = true;
  for (std::size_t k = 0; k < fired.size(); ++k) as_asked &= fired[k] == (k % 3 == 0 ? 1 : 0);
  CHECK(as_asked);
}

TEST_CASE("post wakes the loop from another thread") {
  auto loop = make_loop();
  bool ran = false;
  std::thread other([&] {
    loop->post([&] {
      ran = true;
      loop->stop();
    });
  });
  REQUIRE(loop->run());
  other.join();
  CHECK(ran);
}

TEST_CASE("a handler reads what came, and sees the end") {
  auto loop = make_loop();
  Ends pipe = make_pipe();
  std::string got;
  REQUIRE(loop->watch(pipe.read_end.get(), EPOLLIN, [&](std::uint32_t) {
    std::array<char, 16> buffer;
    const ssize_t count = ::read(pipe.read_end.get(), buffer.data(), buffer.size());
    if (count > 0) {
      got.append(buffer.data(), static_cast<std::size_t>(count));
      pipe.write_end.reset();
      return;
    }
    got += "|end";
    loop->stop();
  }));
  REQUIRE(::write(pipe.write_end.get(), "abc", 3) == 3);
  REQUIRE(loop->run());
  CHECK(got == "abc|end");
}

TEST_CASE("a slow handler does not make others look silent: what came is handled before timers") {
  auto loop = make_loop();
  Ends pipe = make_pipe();
  std::string order;
  REQUIRE(loop->watch(pipe.read_end.get(), EPOLLIN, [&](std::uint32_t) {
    order += 'r';
    loop->unwatch(pipe.read_end.get());
  }));
  hora::Clock::time_point busy_until;
  loop->post([&] {
    loop->call_after(1ms, [&] {
      order += 't';
      CHECK(loop->polled_at() >= busy_until);
      loop->stop();
    });
    REQUIRE(::write(pipe.write_end.get(), "x", 1) == 1);
    busy_until = hora::Clock::now() + 3ms;
    while (hora::Clock::now() < busy_until) {
    }
  });
  REQUIRE(loop->run());
  CHECK(order == "rt");
}

namespace {

// Readable for ever.
Fd ready_descriptor() {
  Fd fd(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  REQUIRE(fd.valid());
  return fd;
}

}  // namespace

TEST_CASE("many background descriptors do not delay the others, and each has its turn") {
  constexpr int kCrowd = 1000;
  constexpr int kMostBetween = 64;
  auto loop = make_loop();
  std::vector<Fd> crowd;
  std::vector<int> served(kCrowd, 0);
  int since_own = 0;
  int since_timer = 0;
  int most_since_own = 0;
  int most_since_timer = 0;
  int turns = 0;
  for (int i = 0; i < kCrowd; ++i) {
    crowd.push_back(ready_descriptor());
    REQUIRE(loop->watch(
        crowd.back().get(), EPOLLIN,
        [&, i](std::uint32_t) {
          ++served[static_cast<std::size_t>(i)];
          ++since_own;
          ++since_timer;
        },
        EventLoop::Priority::kBackground));
  }
  const Fd own = ready_descriptor();
  REQUIRE(loop->watch(own.get(), EPOLLIN, [&](std::uint32_t) {
    most_since_own = std::max(most_since_own, std::exchange(since_own, 0));
    // Enough for all, were each called once.
    if (++turns == 2 * kCrowd / kMostBetween + 2) loop->stop();
  }));
  std::function<void()> tick = [&] {
    most_since_timer = std::max(most_since_timer, std::exchange(since_timer, 0));
    loop->call_after(0ms, tick);
  };
  loop->call_after(0ms, tick);
  REQUIRE(loop->run());
  CHECK(most_since_own <= kMostBetween);
  CHECK(most_since_timer <= 2 * kMostBetween);  // set in one turn, it is due in the next but one
  CHECK(*std::min_element(served.begin(), served.end()) > 0);
}

TEST_CASE("however many descriptors are ready, all are handled before a timer that is due") {
  constexpr int kMany = 600;
  auto loop = make_loop();
  std::vector<Fd> many;
  int handled = 0;
  for (int i = 0; i < kMany; ++i) {
    many.push_back(ready_descriptor());
    REQUIRE(loop->watch(many.back().get(), EPOLLIN, [&](std::uint32_t) { ++handled; }));
  }
  int at_timer = 0;
  loop->call_after(0ms, [&] {
    at_timer = handled;
    loop->stop();
  });
  REQUIRE(loop->run());
  CHECK(at_timer == kMany);
}

TEST_CASE("a handler may end another watch whose event is already fetched") {
  const auto priority = GENERATE(EventLoop::Priority::kNormal, EventLoop::Priority::kBackground);
  auto loop = make_loop();
  std::array<Ends, 2> pipes = {make_pipe(), make_pipe()};
  int handled = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    const auto on_ready = [&, i](std::uint32_t) {
      ++handled;
      for (Ends& pipe : pipes) loop->unwatch(pipe.read_end.get());
      // The number is free for another file, whose watch must not get the old event.
      pipes[1 - i].read_end.reset();
      Ends fresh = make_pipe();
      const auto too_soon = [&](std::uint32_t) { handled += 100; };
      REQUIRE(loop->watch(fresh.read_end.get(), EPOLLIN, too_soon, priority));
      pipes[1 - i] = std::move(fresh);
      loop->call_after(1ms, [&] { loop->stop(); });
    };
    REQUIRE(loop->watch(pipes[i].read_end.get(), EPOLLIN, on_ready, priority));
    REQUIRE(::write(pipes[i].write_end.get(), "x", 1) == 1);
  }
  REQUIRE(loop->run());
  CHECK(handled == 1);
}

TEST_CASE("changing or watching what cannot be watched is an error") {
  auto loop = make_loop();
  CHECK_FALSE(loop->change(0, EPOLLIN));
  CHECK_FALSE(loop->watch(-1, EPOLLIN, [](std::uint32_t) {}));
  loop->unwatch(12345);
}

TEST_CASE("an Fd has one owner") {
  Ends pipe = make_pipe();
  const int number = pipe.read_end.get();
  Fd moved = std::move(pipe.read_end);
  CHECK_FALSE(pipe.read_end.valid());
  CHECK(moved.get() == number);
  CHECK(moved.release() == number);
  CHECK_FALSE(moved.valid());
  Fd again(number);
  again.reset();
  CHECK(::fcntl(number, F_GETFD) == -1);  // really closed
}

TEST_CASE("random tokens differ") {
  const std::string token = random_token();
  CHECK(token.size() == 32);
  CHECK(token.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(token != random_token());
  CHECK(random_bytes(0).empty());
  CHECK(random_bytes(100'000).size() == 100'000);
}

TEST_CASE("what is deferred runs at the end of the turn, also when that stops the loop") {
  auto loop = make_loop();
  std::string order;
  loop->defer([&] { order += "before "; });
  Ends first = make_pipe();
  Ends second = make_pipe();
  REQUIRE(::write(first.write_end.get(), "x", 1) == 1);
  REQUIRE(::write(second.write_end.get(), "x", 1) == 1);
  const auto watch = [&](Ends& pipe) {
    REQUIRE(loop->watch(pipe.read_end.get(), EPOLLIN, [&, fd = pipe.read_end.get()](std::uint32_t) {
      loop->unwatch(fd);
      order += "handler ";
      loop->defer([&] {
        order += "deferred ";
        loop->defer([&] { order += "more "; });
        loop->stop();
      });
    }));
  };
  watch(first);
  watch(second);
  REQUIRE(loop->run());
  CHECK(order == "before handler handler deferred deferred more more ");
}
