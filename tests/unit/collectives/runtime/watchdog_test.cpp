// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/watchdog.h"

#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>

#include "rendezvous/net/socket.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::collectives;
using std::chrono::milliseconds;

namespace {

// What a watchdog has called, to be waited for.
class Notifications {
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

  std::function<void(const std::vector<Watchdog::Silence>&)> warned() {
    return [this](const std::vector<Watchdog::Silence>& silent) {
      const std::lock_guard<std::mutex> lock(mutex_);
      warnings_.push_back(silent);
      came_.notify_all();
    };
  }
  // The next warning; nothing when none comes in that time.
  std::vector<Watchdog::Silence> warning_within(milliseconds time) {
    std::unique_lock<std::mutex> lock(mutex_);
    came_.wait_for(lock, time, [&] { return !warnings_.empty(); });
    if (warnings_.empty()) return {};
    auto first = std::move(warnings_.front());
    warnings_.pop_front();
    return first;
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::optional<std::vector<int>> silent_;
  std::deque<std::vector<Watchdog::Silence>> warnings_;
};

// The ends of some ranks that have met; no network leads to the last one.
std::vector<std::optional<Heartbeat>> meet(int size, const std::vector<int>& askers = {}) {
  std::vector<std::optional<Heartbeat>> all;
  std::vector<std::string> cards;
  for (int rank = 0; rank < size; ++rank) {
    auto signs = Heartbeat::open("127.0.0.1", rank);
    REQUIRE(signs);
    cards.push_back(signs->card());
    all.emplace_back(std::move(*signs));
  }
  cards.push_back("");
  for (auto& each : all) REQUIRE(each->bootstrap(cards, true, askers));
  return all;
}

constexpr milliseconds kLimit{300};
constexpr milliseconds kLong = std::chrono::minutes(1);  // for what has to come
constexpr milliseconds kPastAll{2500};                   // for what must not
const std::vector<int> kByLeaders = find_askers({0, 0, 1, 1, 1});

// The guards of four ranks of a world of five, with a set 1 of the ranks 2 and 3. The last one
// never answers.
class Watched {
 public:
  explicit Watched(milliseconds limit = kLimit, milliseconds warning = {},
                   const std::vector<int>& askers = {})
      : limit_(limit),
        warning_(warning),
        signs_(meet(4, askers)),
        updates_(signs_.size()),
        guards_(signs_.size()) {
    sets_.add(0, {0, 1, 2, 3, 4});
    sets_.add(1, {2, 3});
    for (const int rank : {0, 1, 2, 3}) start(rank);
  }
  void stop(int rank) { guards_[static_cast<std::size_t>(rank)].reset(); }
  void waits_in(int rank, std::int32_t set) {
    guards_[static_cast<std::size_t>(rank)]->waits_in(set);
  }
  void in_step(int rank, std::int32_t set, std::string_view what) {
    guards_[static_cast<std::size_t>(rank)]->in_step(++steps_, set, what);
  }
  void goes_on(int rank) { guards_[static_cast<std::size_t>(rank)]->goes_on(); }
  std::vector<Watchdog::Silence> warning_of(int rank, milliseconds time) {
    return updates_[static_cast<std::size_t>(rank)].warning_within(time);
  }
  std::vector<int> silent(int rank) const {
    return guards_[static_cast<std::size_t>(rank)]->silent();
  }
  std::optional<std::vector<int>> updates_of(int rank, milliseconds time) {
    return updates_[static_cast<std::size_t>(rank)].within(time);
  }

 private:
  void start(int rank) {
    const auto at = static_cast<std::size_t>(rank);
    auto watchdog = Watchdog::post({}, updates_[at].listener(),
                                   Watchdog::Watch{std::move(*signs_[at]), limit_, rank, &sets_,
                                                   warning_, updates_[at].warned()});
    REQUIRE(watchdog);
    guards_[at] = std::move(*watchdog);
  }

  milliseconds limit_;
  milliseconds warning_;
  std::uint64_t steps_ = 0;
  std::vector<std::optional<Heartbeat>> signs_;
  SetTable sets_;
  std::vector<Notifications> updates_;
  std::vector<std::unique_ptr<Watchdog>> guards_;
};

}  // namespace

TEST_CASE("watchdog: the end of a connection, with signs of life and without") {
  for (const bool with_signs : {false, true}) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    const os::Fd own(ends[0]);
    os::Fd other(ends[1]);
    Notifications updates;
    SetTable sets;
    std::optional<Watchdog::Watch> watch;
    if (with_signs) watch = {std::move(*meet(2)[0]), kLimit, 0, &sets, {}, {}};
    const auto watchdog = Watchdog::post({own.get()}, updates.listener(), std::move(watch));
    REQUIRE(watchdog);
    other.reset();
    const auto received = updates.within(kLong);
    REQUIRE(received);
    CHECK(received->empty());
  }
}

TEST_CASE(
    "watchdog: a live rank is not named however long others wait for it; a rank that answered once "
    "and is silent is named") {
  Watched ranks;
  for (const int rank : {0, 1, 3}) ranks.waits_in(rank, 0);  // rank 2 computes
  CHECK_FALSE(ranks.updates_of(0, kPastAll));
  CHECK_FALSE(ranks.updates_of(1, milliseconds(0)));
  CHECK_FALSE(ranks.updates_of(2, milliseconds(0)));
  ranks.stop(2);
  const auto received = ranks.updates_of(0, kLong);
  REQUIRE(received);
  CHECK(*received == std::vector<int>{2});
  // Rank 0's has gone, too: it ends when it has called.
  const auto missed = ranks.updates_of(1, kLong);
  REQUIRE(missed);
  CHECK(*missed == std::vector<int>{0});
}

TEST_CASE("watchdog: silence does not matter while no rank waits for the silent rank") {
  Watched ranks;
  ranks.stop(1);
  ranks.waits_in(3, 1);  // for rank 2, in a set that has not the silent one
  CHECK_FALSE(ranks.updates_of(0, kPastAll));
  ranks.waits_in(2, 0);
  const auto received = ranks.updates_of(0, kLong);
  REQUIRE(received);
  CHECK(*received == std::vector<int>{1});
}

TEST_CASE("watchdog: in a set without rank 0 the one is named that is silent") {
  Watched ranks;
  ranks.waits_in(2, 1);
  ranks.waits_in(3, 1);
  ranks.stop(3);
  const auto received = ranks.updates_of(0, kLong);
  REQUIRE(received);
  CHECK(*received == std::vector<int>{3});
  CHECK(ranks.silent(0) == std::vector<int>{3});
}

namespace {

constexpr milliseconds kWarning{1000};
const std::string kLongName(200, 'n');

// Of a warning that names one rank.
void check_warning(const std::vector<Watchdog::Silence>& got, int rank, std::string_view what) {
  REQUIRE(got.size() == 1);
  CHECK(got[0].rank == rank);
  CHECK(got[0].wait.what == what);
  CHECK(got[0].wait.since >= kWarning);
}

}  // namespace

TEST_CASE(
    "watchdog: without a limit a warning names, repeatedly, the silent rank and the operation of "
    "the "
    "others") {
  Watched ranks(milliseconds(0), 3 * kWarning);
  for (const int rank : {0, 1, 2, 3}) ranks.in_step(rank, 0, "allreduce 'x'");
  CHECK(ranks.warning_of(0, 2 * kPastAll).empty());  // all are merely slow
  ranks.stop(2);
  check_warning(ranks.warning_of(0, kLong), 2, "allreduce 'x'");
  check_warning(ranks.warning_of(0, kLong), 2, "allreduce 'x'");
  CHECK_FALSE(ranks.updates_of(0, milliseconds(0)));  // and nothing is interrupted
  for (const int rank : {1, 3}) CHECK(ranks.warning_of(rank, milliseconds(0)).empty());
}

TEST_CASE("watchdog: no warning while operations end, or for what the stall inspector sees") {
  Watched ranks(milliseconds(0), 3 * kWarning);
  ranks.stop(2);
  ranks.waits_in(0, 0);
  CHECK(ranks.warning_of(0, 2 * kPastAll).empty());
  ranks.waits_in(0, Wait::kNowhere);
  ranks.in_step(1, 0, "allgather 'y'");
  for (int i = 0; i < 50; ++i) {
    CHECK(ranks.warning_of(0, kWarning / 10).empty());
    ranks.goes_on(1);
  }
  check_warning(ranks.warning_of(0, kLong), 2, "allgather 'y'");
}

TEST_CASE("watchdog: a warning of a set without rank 0 has the name that its ranks know") {
  Watched ranks(milliseconds(0), kWarning);
  ranks.in_step(3, 1, kLongName);
  ranks.in_step(0, 0, "allreduce 'of all'");
  ranks.stop(2);
  const auto got = ranks.warning_of(0, kLong);
  REQUIRE(got.size() == 1);
  CHECK(got[0].rank == 2);
  ranks.waits_in(0, Wait::kNowhere);
  std::vector<Watchdog::Silence> other;
  do {
    other = ranks.warning_of(0, kLong);
    REQUIRE(other.size() == 1);
  } while (other[0].wait.set != 1);
  CHECK(other[0].wait.what == kLongName.substr(0, other[0].wait.what.size()));
  CHECK(other[0].wait.what.size() > 80);
}

TEST_CASE("watchdog: while rank 0 is silent the ranks that wait report it in turn") {
  Watched ranks(milliseconds(0), kWarning);
  for (const int rank : {1, 2, 3}) ranks.in_step(rank, 0, "allreduce 'x'");
  ranks.stop(0);
  ranks.stop(1);  // the one whose turn would be first
  check_warning(ranks.warning_of(2, kLong), 0, "allreduce 'x'");
  check_warning(ranks.warning_of(3, kLong), 0, "allreduce 'x'");
}

TEST_CASE("signs of life: in a large job the leader of a host asks its ranks") {
  CHECK(find_askers({0, 0, 1, 1, 1}) == std::vector<int>{0, 0, 0, 2, 2});
  CHECK(find_askers({0, 1, 0, 1, 2}) == std::vector<int>{0, 0, 0, 1, 0});
  const std::vector<int> askers = find_askers({0, 0, 1, 1, 1});
  auto all = meet(4, askers);
  const Wait wait{7, true, milliseconds(50), "allreduce 'x'"};
  auto now = Clock::now();
  // As the watchdogs do: one question of each, and the asked ones answer.
  const auto turn = [&](const std::vector<std::size_t>& alive) {
    now += std::chrono::seconds(1);
    for (const std::size_t rank : alive) all[rank]->ask(now);
    for (int hop = 0; hop < 3; ++hop) {
      for (const std::size_t rank : alive) all[rank]->receive(now, wait);
    }
  };
  // The ranks whose last sign, as far as rank 0 knows one, is that old.
  const auto silent_for = [&](int turns) {
    return all[0]->silent_since(now - std::chrono::seconds(turns) + milliseconds(1));
  };
  turn({0, 1, 2, 3});
  turn({0, 1, 2, 3});
  CHECK(silent_for(0) == std::vector<int>{1, 2, 3});  // all are known
  CHECK(silent_for(2).empty());
  const std::vector<Wait> waits = all[0]->waits(now - std::chrono::seconds(1));
  REQUIRE(waits.size() == 3);
  CHECK(waits[2].set == 7);
  CHECK(waits[2].what == "allreduce 'x'");
  // A rank that is stopped: its leader reports the age of its last sign.
  for (int i = 0; i < 4; ++i) turn({0, 1, 2});
  CHECK(silent_for(3) == std::vector<int>{3});
  // A leader that is stopped: its ranks are asked instead, and know that rank 0 lives.
  for (int i = 0; i < 2; ++i) turn({0, 1, 2, 3});
  CHECK(silent_for(2).empty());
  for (int i = 0; i < 20; ++i) {
    turn({0, 1, 3});
    const auto known = now - all[0]->delay() * std::chrono::seconds(1);
    const std::vector<int> silent = all[0]->silent_since(known);
    CHECK(silent == (i < all[0]->delay() ? std::vector<int>() : std::vector<int>{2}));
    CHECK(all[3]->silent_since(known).empty());
  }
  // It goes on.
  for (int i = 0; i < 2; ++i) turn({0, 1, 2, 3});
  CHECK(silent_for(2).empty());
  // Rank 0 is stopped: all miss it, also those that it reaches through others.
  for (int i = 0; i < 4; ++i) turn({1, 2, 3});
  for (const std::size_t rank : {1, 2, 3}) {
    CHECK(all[rank]->silent_since(now - std::chrono::seconds(3)) == std::vector<int>{0});
  }
}

TEST_CASE(
    "signs of life: a leader that was stopped does not report its ranks as silent meanwhile") {
  auto all = meet(4, kByLeaders);
  auto now = Clock::now();
  const auto begun = now;
  for (int turn = 0; turn < 6; ++turn) {
    now += std::chrono::seconds(1);
    if (turn >= 2) all[2]->restart(now);
    for (const std::size_t rank : {0, 2}) all[rank]->ask(now);
    for (const std::size_t rank : {3, 2, 1, 0, 2, 0}) {
      if (rank < 3 || turn < 2)
        all[rank]->receive(now, {});  // rank 3 is stopped, too, and stays so
    }
  }
  CHECK(all[0]->silent_since(begun + std::chrono::seconds(3)) == std::vector<int>{3});
}

TEST_CASE("signs of life: a host of more ranks than a datagram has room for") {
  constexpr int kRanks = 42;
  std::vector<std::int32_t> hosts(kRanks, 1);
  hosts[0] = 0;
  hosts.push_back(1);  // the one that never answers
  auto all = meet(kRanks, find_askers(hosts));
  const auto begun = Clock::now();
  for (int turn = 0; turn < 2; ++turn) {
    for (auto& each : all) each->ask(Clock::now());
    for (int rank = kRanks - 1; rank >= 0; --rank) {
      all[static_cast<std::size_t>(rank)]->receive(Clock::now(), {3, false, {}, {}});
    }
    all[1]->receive(Clock::now(), {});
  }
  CHECK(all[0]->silent_since(begun).empty());
  CHECK(all[0]->silent_since(Clock::now() + kLong).size() == kRanks - 1);
}

TEST_CASE("watchdog: by the leaders of the hosts, who is silent is named, be it a leader or not") {
  const int victim = GENERATE(0, 2, 3);
  Watched ranks(kLimit, {}, kByLeaders);
  for (const int rank : {0, 1, 2, 3}) ranks.waits_in(rank, 0);
  if (victim == 3) {
    CHECK_FALSE(ranks.updates_of(0, kPastAll + kPastAll / 2));
    CHECK_FALSE(ranks.updates_of(3, milliseconds(0)));
  }
  ranks.stop(victim);
  for (const int rank : {0, 1, 2, 3}) {
    if (rank == victim || (victim > 0 && rank > 0)) continue;
    const auto received = ranks.updates_of(rank, kLong);
    REQUIRE(received);
    CHECK(*received == std::vector<int>{victim});
  }
}

TEST_CASE("watchdog: a host whose ranks are all stopped is named as a whole") {
  Watched ranks(kLimit, {}, kByLeaders);
  for (const int rank : {0, 1, 2, 3}) ranks.waits_in(rank, 0);
  CHECK_FALSE(ranks.updates_of(0, kPastAll));
  ranks.stop(3);
  // Rank 0 gets signs of the leader for longer than of the other one.
  CHECK_FALSE(ranks.updates_of(0, milliseconds(400)));
  ranks.stop(2);
  const auto received = ranks.updates_of(0, kLong);
  REQUIRE(received);
  CHECK(*received == std::vector<int>{2, 3});
}

TEST_CASE("signs of life: datagrams of another job are ignored") {
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
  REQUIRE(theirs[0].bootstrap({theirs[0].card(), "", theirs[2].card()}, true));
  REQUIRE(theirs[2].bootstrap({their_secret + our_place, "", theirs[2].card()}, true));
  REQUIRE(ours[0].bootstrap({ours[0].card(), ours[1].card(), ""}, true));
  REQUIRE(net::wait_readable(ours[0].fd(), Clock::now() + kLong, "the datagram of the other job"));
  const auto now = Clock::now();
  ours[0].receive(now, {});
  CHECK(ours[0].silent_since(now + kLong).empty());  // none ever answered
  REQUIRE(ours[1].bootstrap({ours[0].card(), ours[1].card(), ""}, true));
  REQUIRE(net::wait_readable(ours[0].fd(), Clock::now() + kLong, "the answer"));
  ours[0].receive(now, {});
  CHECK(ours[0].silent_since(now + kLong) == std::vector<int>{1});
  CHECK(ours[0].silent_since(now).empty());
}

TEST_CASE(
    "signs of life: without a socket of rank 0, and so without a secret, datagrams are ignored") {
  auto signs = Heartbeat::open("127.0.0.1", 1);
  REQUIRE(signs);
  const std::string card = signs->card();
  REQUIRE(signs->bootstrap({"", card}, true));
  // As rank 0 would ask: no secret, its rank, one sign, which is its own.
  std::string question(16 + 20 + 96, '\0');
  question[12] = 1;
  sockaddr_storage where{};
  const unsigned length = net::to_sockaddr(*parse_endpoint(card.substr(8)), where);
  const os::Fd pending(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  REQUIRE(::sendto(pending.get(), question.data(), question.size(), 0,
                   reinterpret_cast<const sockaddr*>(&where), length) > 0);
  // Over the loopback it has arrived.
  signs->receive(Clock::now(), {});
  CHECK(signs->silent_since(Clock::now() + kLong).empty());
}
