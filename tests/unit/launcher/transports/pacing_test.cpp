// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/pacing.h"

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

constexpr Milliseconds kSoon{2};
constexpr Milliseconds kLater{60'000};

// Ends the loop when nothing has: a limit that is not kept is a failure and not a test that hangs.
struct Loop {
  std::unique_ptr<os::EventLoop> loop = std::move(os::EventLoop::create()).value();
  Timer limit{*loop};
  int over = 0;

  void run_until_over() {
    const auto guard = loop->call_after(Milliseconds{20'000}, [this] { loop->stop(); });
    REQUIRE(loop->run());
    loop->cancel(guard);
  }
  // Long enough for a limit of kSoon, whose timer is due before this one.
  void run_past_soon() {
    loop->call_after(10 * kSoon, [this] { loop->stop(); });
    REQUIRE(loop->run());
  }
};

TEST_CASE("a stage that takes too long is over, once") {
  Loop scene;
  scene.limit.set(kSoon, [&] {
    ++scene.over;
    scene.loop->stop();
  });
  scene.run_until_over();
  CHECK(scene.over == 1);
  scene.run_past_soon();
  CHECK(scene.over == 1);
}

TEST_CASE("a stage that ends in time is not over later") {
  Loop scene;
  scene.limit.set(kSoon, [&] { ++scene.over; });
  SECTION("the last one") { scene.limit.cancel(); }
  SECTION("the next one has a limit of its own") {
    scene.limit.set(kLater, [&] { scene.over += 100; });
  }
  scene.run_past_soon();
  CHECK(scene.over == 0);
}

TEST_CASE("a limit that is destroyed is never over") {
  Loop scene;
  {
    Timer limit(*scene.loop);
    limit.set(kSoon, [&] { ++scene.over; });
  }
  scene.run_past_soon();
  CHECK(scene.over == 0);
}

TEST_CASE("what ends one stage may begin the next") {
  Loop scene;
  scene.limit.set(kSoon, [&] {
    ++scene.over;
    scene.limit.set(kSoon, [&] {
      ++scene.over;
      scene.loop->stop();
    });
  });
  scene.run_until_over();
  CHECK(scene.over == 2);
}

TEST_CASE("the time of a stage counts from its own beginning") {
  Loop scene;
  scene.run_past_soon();
  const auto before = Clock::now();
  scene.limit.set(kLater, [] {});
  scene.run_past_soon();
  const std::string text = scene.limit.waited();
  const std::chrono::duration<double> most = Clock::now() - before;
  CAPTURE(text, most.count());
  REQUIRE(text.size() >= 3);
  CHECK(text.substr(text.size() - 2) == " s");
  // The text is rounded down to tenths, or to the nearest second from 10 s on.
  CHECK(std::stod(text) <= most.count() + 0.5);
}

}  // namespace
}  // namespace hora::launcher
