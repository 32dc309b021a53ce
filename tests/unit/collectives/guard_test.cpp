#include "collectives/runtime/guard.h"

#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <string>

#include "rendezvous/net/socket.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::collectives;
using std::chrono::milliseconds;

namespace {

// What a guard has called, to be waited for.
class News {
 public:
  Guard::OnBreak listener() {
    return [this](const std::vector<int>& silent) {
      const std::lock_guard<std::mutex> lock(mutex_);
      silent_ = silent;
      came_.notify_all();
    };
  }
  // Nothing when none comes in that time.
  std::optional<std::vector<int>> within(milliseconds time) {
    std::unique_lock<std::mutex> lock(mutex_);
    came_.wait_for(lock, time, [&] { return silent_.has_value(); });
    return silent_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::optional<std::vector<int>> silent_;
};

// The ends of some ranks that have met.
std::vector<std::optional<LifeSigns>> meet(int size) {
  std::vector<std::optional<LifeSigns>> all;
  std::vector<std::string> cards;
  for (int rank = 0; rank < size; ++rank) {
    auto signs = LifeSigns::open("127.0.0.1", rank);
    REQUIRE(signs);
    cards.push_back(signs->card());
    all.emplace_back(std::move(*signs));
  }
  for (auto& each : all) REQUIRE(each->meet(cards));
  return all;
}

constexpr milliseconds kLimit{300};
constexpr milliseconds kLong = std::chrono::minutes(1);  // for what has to come
constexpr milliseconds kPastAll{2500};                   // for what must not

}  // namespace

TEST_CASE("guard: the end of a connection, with signs of life and without") {
  for (const bool with_signs : {false, true}) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    const os::Fd own(ends[0]);
    os::Fd other(ends[1]);
    News news;
    Guard guard({own.get()}, news.listener(), with_signs ? std::move(meet(2)[0]) : std::nullopt,
                kLimit, 0);
    other.reset();
    const auto heard = news.within(kLong);
    REQUIRE(heard);
    CHECK(heard->empty());
  }
}

TEST_CASE(
    "guard: who lives is left alone however long a step lasts; who was heard of and is silent is "
    "named") {
  auto signs = meet(4);
  News at_zero, at_one;
  Guard zero({}, at_zero.listener(), std::move(signs[0]), kLimit, 0);
  zero.step_begins();
  Guard one({}, at_one.listener(), std::move(signs[1]), kLimit, 1);
  one.step_begins();
  {
    News at_two;
    Guard two({}, at_two.listener(), std::move(signs[2]), kLimit, 2);
    two.step_begins();
    // Rank 3 has never been heard of.
    CHECK_FALSE(at_zero.within(kPastAll));
    CHECK_FALSE(at_one.within(milliseconds(0)));
    CHECK_FALSE(at_two.within(milliseconds(0)));
  }
  const auto heard = at_zero.within(kLong);  // rank 2's guard has gone
  REQUIRE(heard);
  CHECK(*heard == std::vector<int>{2});
  // Rank 0's has, too: it ends when it has called.
  const auto missed = at_one.within(kLong);
  REQUIRE(missed);
  CHECK(*missed == std::vector<int>{0});
}

TEST_CASE("guard: silence does not matter while nothing waits") {
  auto signs = meet(2);
  News at_zero;
  Guard zero({}, at_zero.listener(), std::move(signs[0]), kLimit, 0);
  {
    News at_one;
    Guard one({}, at_one.listener(), std::move(signs[1]), kLimit, 1);
    CHECK_FALSE(at_one.within(milliseconds(600)));
  }
  CHECK_FALSE(at_zero.within(kPastAll));
  zero.step_begins();
  const auto heard = at_zero.within(kLong);
  REQUIRE(heard);
  CHECK(*heard == std::vector<int>{1});
}

TEST_CASE("signs of life: a stranger's datagrams are no signs") {
  auto signs = meet(2);
  const auto now = Clock::now();
  auto stranger = LifeSigns::open("127.0.0.1", 1);
  REQUIRE(stranger);
  auto zero_of_another_job = LifeSigns::open("127.0.0.1", 0);
  REQUIRE(zero_of_another_job);
  // It knows where rank 0 is, and not its secret.
  const std::string place = signs[0]->card().substr(8);
  REQUIRE(stranger->meet({std::string(8, 'x') + place, stranger->card()}));
  REQUIRE(zero_of_another_job->meet({zero_of_another_job->card(), std::string(8, 'x') + place}));
  zero_of_another_job->ask();
  REQUIRE(net::wait_readable(signs[0]->fd(), Clock::now() + kLong, "the datagram"));
  signs[0]->hear(now);
  CHECK(signs[0]->silent_since(now + kLong).empty());  // nobody was ever heard of
  signs[0]->ask();
  REQUIRE(net::wait_readable(signs[1]->fd(), Clock::now() + kLong, "the question"));
  signs[1]->hear(now);
  REQUIRE(net::wait_readable(signs[0]->fd(), Clock::now() + kLong, "the answer"));
  signs[0]->hear(now);
  CHECK(signs[0]->silent_since(now + kLong) == std::vector<int>{1});
  CHECK(signs[0]->silent_since(now).empty());
}
