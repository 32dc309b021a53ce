#include "collectives/runtime/watchdog.h"

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

// What a watchdog has called, to be waited for.
class News {
 public:
  Watchdog::OnBreak listener() {
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

// The ends of some ranks that have met; no network leads to the last one.
std::vector<std::optional<Heartbeat>> meet(int size) {
  std::vector<std::optional<Heartbeat>> all;
  std::vector<std::string> cards;
  for (int rank = 0; rank < size; ++rank) {
    auto signs = Heartbeat::open("127.0.0.1", rank);
    REQUIRE(signs);
    cards.push_back(signs->card());
    all.emplace_back(std::move(*signs));
  }
  cards.push_back("");
  for (auto& each : all) REQUIRE(each->bootstrap(cards));
  return all;
}

constexpr milliseconds kLimit{300};
constexpr milliseconds kLong = std::chrono::minutes(1);  // for what has to come
constexpr milliseconds kPastAll{2500};                   // for what must not

// The guards of four ranks of a world of five, with a set 1 of the ranks 2 and 3. The last one is
// never heard of.
class Watched {
 public:
  Watched() : signs_(meet(4)), news_(signs_.size()), guards_(signs_.size()) {
    sets_.add(0, {0, 1, 2, 3, 4});
    sets_.add(1, {2, 3});
    for (const int rank : {0, 1, 2, 3}) start(rank);
  }
  void stop(int rank) { guards_[static_cast<std::size_t>(rank)].reset(); }
  void waits_in(int rank, std::int32_t set) {
    guards_[static_cast<std::size_t>(rank)]->waits_in(set);
  }
  std::vector<int> silent(int rank) const {
    return guards_[static_cast<std::size_t>(rank)]->silent();
  }
  std::optional<std::vector<int>> updates_of(int rank, milliseconds time) {
    return news_[static_cast<std::size_t>(rank)].within(time);
  }

 private:
  void start(int rank) {
    const auto at = static_cast<std::size_t>(rank);
    guards_[at].emplace(std::vector<int>{}, news_[at].listener(),
                        Watchdog::Watch{std::move(*signs_[at]), kLimit, rank, &sets_});
  }

  std::vector<std::optional<Heartbeat>> signs_;
  SetTable sets_;
  std::vector<News> news_;
  std::vector<std::optional<Watchdog>> guards_;
};

}  // namespace

TEST_CASE("watchdog: the end of a connection, with signs of life and without") {
  for (const bool with_signs : {false, true}) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    const os::Fd own(ends[0]);
    os::Fd other(ends[1]);
    News news;
    SetTable sets;
    std::optional<Watchdog::Watch> watch;
    if (with_signs) watch = {std::move(*meet(2)[0]), kLimit, 0, &sets};
    Watchdog watchdog({own.get()}, news.listener(), std::move(watch));
    other.reset();
    const auto heard = news.within(kLong);
    REQUIRE(heard);
    CHECK(heard->empty());
  }
}

TEST_CASE(
    "watchdog: who lives is left alone however long others wait for it; who was heard of and is "
    "silent is named") {
  Watched ranks;
  for (const int rank : {0, 1, 3}) ranks.waits_in(rank, 0);  // rank 2 computes
  CHECK_FALSE(ranks.updates_of(0, kPastAll));
  CHECK_FALSE(ranks.updates_of(1, milliseconds(0)));
  CHECK_FALSE(ranks.updates_of(2, milliseconds(0)));
  ranks.stop(2);
  const auto heard = ranks.updates_of(0, kLong);
  REQUIRE(heard);
  CHECK(*heard == std::vector<int>{2});
  // Rank 0's has gone, too: it ends when it has called.
  const auto missed = ranks.updates_of(1, kLong);
  REQUIRE(missed);
  CHECK(*missed == std::vector<int>{0});
}

TEST_CASE("watchdog: silence does not matter while nobody waits for the silent") {
  Watched ranks;
  ranks.stop(1);
  ranks.waits_in(3, 1);  // for rank 2, in a set that has not the silent one
  CHECK_FALSE(ranks.updates_of(0, kPastAll));
  ranks.waits_in(2, 0);
  const auto heard = ranks.updates_of(0, kLong);
  REQUIRE(heard);
  CHECK(*heard == std::vector<int>{1});
}

TEST_CASE("watchdog: in a set without rank 0 the one is named that is silent") {
  Watched ranks;
  ranks.waits_in(2, 1);
  ranks.waits_in(3, 1);
  ranks.stop(3);
  const auto heard = ranks.updates_of(0, kLong);
  REQUIRE(heard);
  CHECK(*heard == std::vector<int>{3});
  CHECK(ranks.silent(0) == std::vector<int>{3});
}

TEST_CASE("signs of life: a stranger's datagrams are no signs") {
  std::vector<Heartbeat> ours, theirs;  // two jobs, of which the other one takes our rank 0 for its
  for (auto* job : {&ours, &theirs}) {
    for (const int rank : {0, 1, 2}) {
      auto signs = Heartbeat::open("127.0.0.1", rank);
      REQUIRE(signs);
      job->push_back(std::move(*signs));
    }
  }
  const std::string their_secret = theirs[0].card().substr(0, 8);
  const std::string our_place = ours[0].card().substr(8);
  REQUIRE(theirs[0].bootstrap({theirs[0].card(), "", theirs[2].card()}));
  REQUIRE(theirs[2].bootstrap({their_secret + our_place, "", theirs[2].card()}));
  REQUIRE(ours[0].bootstrap({ours[0].card(), ours[1].card(), ""}));
  REQUIRE(net::wait_readable(ours[0].fd(), Clock::now() + kLong, "the stranger's datagram"));
  const auto now = Clock::now();
  ours[0].hear(now, Heartbeat::kNowhere);
  CHECK(ours[0].silent_since(now + kLong).empty());  // nobody was ever heard of
  REQUIRE(ours[1].bootstrap({ours[0].card(), ours[1].card(), ""}));
  REQUIRE(net::wait_readable(ours[0].fd(), Clock::now() + kLong, "the answer"));
  ours[0].hear(now, Heartbeat::kNowhere);
  CHECK(ours[0].silent_since(now + kLong) == std::vector<int>{1});
  CHECK(ours[0].silent_since(now).empty());
}
