// SPDX-License-Identifier: Apache-2.0
#include "launcher/job/job_state.h"

#include <signal.h>

#include "launcher/failures/failure_code.h"
#include "tests/support/catch.h"

using namespace hora::launcher;
using namespace std::chrono_literals;

namespace {

// A job with a clock of its own.
struct Job {
  explicit Job(int hosts, JobState::Options options = {})
      : state((options.hosts = hosts, options), now) {}

  std::vector<Action> operator()(const Event& event, Milliseconds later = 0ms) {
    now += later;
    return state.step(event, now);
  }
  void start() {
    for (int h = 0; h < hosts(); ++h) (*this)(HostGreeted{h});
    for (int h = 0; h < hosts(); ++h) (*this)(HostReady{h});
    REQUIRE(state.started());
  }
  int hosts() const { return host_count; }

  TimePoint now{};
  int host_count = 0;
  JobState state;
};

Job started_job(int hosts, JobState::Options options = {}) {
  Job job(hosts, options);
  job.host_count = hosts;
  job.start();
  return job;
}

RankExit exited(int rank, int code, std::int64_t clock_ns = 0) {
  RankExit exit;
  exit.rank = rank;
  exit.exit_code = code;
  exit.clock_ns = clock_ns;
  return exit;
}

template <typename T>
int count(const std::vector<Action>& actions) {
  int n = 0;
  for (const Action& action : actions) n += std::holds_alternative<T>(action);
  return n;
}

}  // namespace

TEST_CASE("hosts greet, get ready, run and finish") {
  Job job(2);
  job.host_count = 2;
  REQUIRE(job(HostGreeted{1}).empty());
  REQUIRE(count<PrepareAll>(job(HostGreeted{0})) == 1);
  REQUIRE(job(HostReady{0}).empty());
  REQUIRE(count<StartAll>(job(HostReady{1})) == 1);
  REQUIRE_FALSE(job.state.next_deadline().has_value());
  job(RankEnded{0, exited(0, 0)});
  job(RankEnded{1, exited(1, 0)});
  job(HostFinished{0, {}});
  const auto last = job(HostFinished{1, {}});
  REQUIRE(count<Finish>(last) == 1);
  REQUIRE(job.state.done());
  REQUIRE(job.state.outcome().exit_code() == 0);
  REQUIRE(job.state.outcome().exits.size() == 2);
}

TEST_CASE("a host without a rank is let go, and not waited for") {
  Job job(2);
  job.host_count = 2;
  job(HostGreeted{0});
  job(HostGreeted{1});
  REQUIRE(count<DropHost>(job(HostUnneeded{1})) == 1);
  REQUIRE(count<StartAll>(job(HostReady{0})) == 1);
  REQUIRE(count<Finish>(job(HostFinished{0, {}})) == 1);
}

TEST_CASE("one rank fails: every host is asked to end its ranks, and its code is the job's") {
  Job job = started_job(3);
  const auto actions = job(RankEnded{1, exited(4, 7)});
  REQUIRE(count<TerminateHost>(actions) == 3);
  auto killed = exited(0, 0);
  killed.signal = 15;
  killed.terminated_by_us = true;
  REQUIRE(job(RankEnded{0, killed}).empty());
  job(HostFinished{0, {}});
  job(HostFinished{1, {}});
  REQUIRE(count<Finish>(job(HostFinished{2, {}})) == 1);
  const auto& outcome = job.state.outcome();
  REQUIRE(outcome.exit_code() == 7);
  REQUIRE(outcome.cause->kind == Cause::Kind::kRank);
  REQUIRE(outcome.cause->exit.rank == 4);
  REQUIRE(outcome.cause->host == 1);
}

TEST_CASE("a rank that fails does not end the others of a job that keeps going") {
  JobState::Options options;
  options.keep_going = true;
  Job job = started_job(2, options);
  CHECK(job(RankEnded{0, exited(0, 5, 200)}).empty());
  CHECK_FALSE(job.state.ending());
  job(HostFinished{0, {}});
  job(RankEnded{1, exited(1, 6, 100)});
  CHECK(count<Finish>(job(HostFinished{1, {}})) == 1);
  REQUIRE(job.state.outcome().cause);
  CHECK(job.state.outcome().cause->exit.rank == 1);  // the first by the clock
  CHECK(job.state.outcome().cause->host == 1);
  CHECK(job.state.outcome().exit_code() == 6);

  Job good = started_job(1, options);
  good(RankEnded{0, exited(0, 0)});
  good(HostFinished{0, {}});
  CHECK(good.state.outcome().exit_code() == 0);
  Job interrupted = started_job(1, options);
  interrupted(RankEnded{0, exited(0, 5)});
  CHECK(count<TerminateHost>(interrupted(UserSignal{2})) == 1);
  interrupted(HostFinished{0, {}});
  CHECK(interrupted.state.outcome().exit_code() == 130);
}

TEST_CASE("the first failure by the clock is the cause, not the first report") {
  Job job = started_job(2);
  job(RankEnded{0, exited(0, 1, 2'000)});
  job(RankEnded{1, exited(1, 42, 1'000)});
  job(HostFinished{0, {}});
  job(HostFinished{1, {}});
  REQUIRE(job.state.outcome().exit_code() == 42);
  REQUIRE(job.state.outcome().cause->exit.rank == 1);
  REQUIRE(job.state.outcome().cause->host == 1);
}

TEST_CASE("clock offsets between hosts are taken into account") {
  Job job = started_job(2);
  job(RankEnded{0, exited(0, 1, 5'000'000), 0ms});
  job(RankEnded{1, exited(1, 2, 1'000'000), 10ms});  // that host's clock is 10 ms slow
  job(HostFinished{0, {}});
  job(HostFinished{1, {}});
  REQUIRE(job.state.outcome().exit_code() == 1);
}

TEST_CASE("every exit code and signal arrives as the shell would say it") {
  for (int code = 1; code < 256; ++code) {
    Job job = started_job(1);
    job(RankEnded{0, exited(0, code)});
    job(HostFinished{0, {}});
    REQUIRE(job.state.outcome().exit_code() == code);
  }
  for (int signal = 1; signal < 65; ++signal) {
    Job job = started_job(1);
    RankExit exit = exited(0, 0);
    exit.signal = signal;
    job(RankEnded{0, exit});
    job(HostFinished{0, {}});
    REQUIRE(job.state.outcome().exit_code() == 128 + signal);
  }
}

TEST_CASE("a host that cannot be reached ends the job before anything runs") {
  Job job(3);
  job.host_count = 3;
  job(HostGreeted{0});
  job(HostFailed{1, {std::string(failure::kSshAuth), "no key was accepted", ""}});
  REQUIRE_FALSE(job.state.ending());  // the third may have something to say, too
  REQUIRE(count<Finish>(job(ClockTick{}, 4'999ms)) == 0);
  REQUIRE(job.state.next_deadline() == job.now + 1ms);
  const auto actions = job(ClockTick{}, 1ms);
  REQUIRE(count<TerminateHost>(actions) == 1);  // the one with an agent
  REQUIRE(count<DropHost>(actions) == 1);       // the one still connecting
  REQUIRE(job.state.outcome().unanswered == std::vector{2});
  REQUIRE(count<Finish>(job(HostFinished{0, {}})) == 1);
  REQUIRE_FALSE(job.state.started());
  REQUIRE(job.state.outcome().exit_code() == 125);
  REQUIRE(job.state.outcome().cause->failure.code == failure::kSshAuth);
}

TEST_CASE("a job that asks every host ends when all have answered, and knows who has not") {
  JobState::Options options;
  options.asks_every_host = true;
  Job job(4, options);
  REQUIRE(count<DropHost>(job(HostFailed{2, {"E_RESOLVE", "nowhere", ""}})) == 1);
  job(HostGreeted{0});
  job(HostFailed{1, {"E_CONNECT", "refused", ""}});
  REQUIRE_FALSE(job.state.ending());
  const auto last = job(HostGreeted{3});
  REQUIRE(count<PrepareAll>(last) == 0);
  REQUIRE(count<TerminateHost>(last) == 2);
  const JobOutcome& outcome = job.state.outcome();
  REQUIRE(outcome.cause->host == 1);
  REQUIRE(outcome.exit_code() == 125);
  REQUIRE(outcome.unreached.size() == 1);
  REQUIRE(outcome.unreached[0].host == 2);
}

TEST_CASE("all hosts that fail are named, in the order of the list") {
  Job job(4);
  job.host_count = 4;
  job(HostFailed{3, {"E_SSH_AUTH", "no key", ""}});
  job(HostGreeted{1});
  job(HostFailed{0, {"E_RESOLVE", "nowhere", ""}});
  REQUIRE_FALSE(job.state.ending());
  const auto last = job(HostFailed{2, {"E_SSH_AUTH", "no key", ""}});
  REQUIRE(count<PrepareAll>(last) == 0);
  REQUIRE(count<TerminateHost>(last) == 1);
  const JobOutcome& outcome = job.state.outcome();
  REQUIRE(outcome.cause->host == 0);
  REQUIRE(outcome.unreached.size() == 2);
  CHECK(outcome.unreached[0].host == 2);
  CHECK(outcome.unreached[1].host == 3);
  CHECK(outcome.unanswered.empty());
}

TEST_CASE("so are those that cannot prepare the job") {
  Job job(3);
  job.host_count = 3;
  for (int host = 0; host < 3; ++host) job(HostGreeted{host});
  job(HostFailed{2, {std::string(failure::kCwd), "no such directory", ""}});
  job(HostFailed{1, {std::string(failure::kCwd), "no such directory", ""}});
  REQUIRE_FALSE(job.state.ending());
  const auto last = job(HostReady{0});
  REQUIRE(count<StartAll>(last) == 0);
  REQUIRE(count<TerminateHost>(last) == 1);
  CHECK(job.state.outcome().cause->host == 1);
  CHECK(job.state.outcome().unreached.size() == 1);
}

TEST_CASE("start-up has a deadline that names who is missing") {
  JobState::Options options;
  options.start_timeout = 30s;
  Job job(2, options);
  job.host_count = 2;
  job(HostGreeted{0});
  REQUIRE(job.state.next_deadline() == job.now + 30s);
  REQUIRE(job(ClockTick{}, 29'999ms).empty());
  job(ClockTick{}, 1ms);
  REQUIRE(job.state.ending());
  job(HostFinished{0, {}});
  REQUIRE(job.state.done());
  REQUIRE(job.state.outcome().exit_code() == 124);
}

TEST_CASE("the whole job can have a deadline") {
  JobState::Options options;
  options.timeout = 5s;
  Job job = started_job(1, options);
  job(ClockTick{}, 5s);
  REQUIRE(job.state.ending());
  job(HostFinished{0, {}});
  REQUIRE(job.state.outcome().exit_code() == 124);
}

TEST_CASE("a lost host ends the others; it is named, and its ranks are unconfirmed") {
  Job job = started_job(2);
  const auto actions = job(HostLost{1, "connection closed", job.now});
  REQUIRE(count<TerminateHost>(actions) == 1);
  job(HostFinished{0, {}});
  REQUIRE(job.state.done());
  REQUIRE(job.state.outcome().cause->host == 1);
  REQUIRE(job.state.outcome().exit_code() == 125);
  REQUIRE(job.state.outcome().unconfirmed_hosts == std::vector<int>{1});
}

TEST_CASE("a rank that dies of a host's silence is not the cause") {
  Job job = started_job(2);
  const TimePoint silent_since = job.now;
  job(RankEnded{0, exited(0, 1)}, 2s);
  job(HostLost{1, "silent", silent_since}, 3s);
  job(HostFinished{0, {}});
  REQUIRE(job.state.outcome().cause->kind == Cause::Kind::kHost);
  REQUIRE(job.state.outcome().cause->host == 1);
}

TEST_CASE("Ctrl-C ends, again kills, a third time leaves") {
  Job job = started_job(2);
  const auto first = job(UserSignal{2});
  REQUIRE(count<TerminateHost>(first) == 2);
  REQUIRE(std::get<TerminateHost>(first[0]).grace == 5s);
  const auto second = job(UserSignal{2});
  REQUIRE(count<TerminateHost>(second) == 2);
  REQUIRE(std::get<TerminateHost>(second[0]).grace == 0ms);
  const auto third = job(UserSignal{2});
  REQUIRE(count<Finish>(third) == 1);
  REQUIRE(job.state.outcome().exit_code() == 130);
  REQUIRE(job.state.outcome().unconfirmed_hosts.size() == 2);
}

TEST_CASE("The keys of a terminal reach the ranks as they are, every other request as TERM") {
  const std::pair<int, int> signals[] = {
      {SIGINT, SIGINT}, {SIGHUP, SIGHUP}, {SIGTERM, SIGTERM}, {SIGXCPU, SIGTERM}};
  for (const auto& [asked, sent] : signals) {
    Job job = started_job(1);
    const auto actions = job(UserSignal{asked});
    REQUIRE(count<TerminateHost>(actions) == 1);
    CHECK(std::get<TerminateHost>(actions[0]).signal == sent);
    // Before TERM, another signal has as much time.
    const auto time_limit = *job.state.next_deadline() - job.now;
    CHECK(time_limit > (sent == SIGTERM ? 5s : 10s));
    CHECK(time_limit < (sent == SIGTERM ? 10s : 15s));
    CHECK(std::get<TerminateHost>(job(UserSignal{asked})[0]).signal == SIGTERM);
  }
}

TEST_CASE("hosts that never confirm the end are left after grace and sweep time") {
  Job job = started_job(1);
  job(RankEnded{0, exited(0, 3)});
  REQUIRE(job.state.next_deadline().has_value());
  const TimePoint deadline = *job.state.next_deadline();
  REQUIRE(deadline > job.now + 5s);
  const auto actions =
      job(ClockTick{}, std::chrono::duration_cast<Milliseconds>(deadline - job.now));
  REQUIRE(count<Finish>(actions) == 1);
  REQUIRE(job.state.outcome().exit_code() == 3);
  REQUIRE(job.state.outcome().unconfirmed_hosts == std::vector<int>{0});
}

TEST_CASE("a host whose ranks are gone is waited for while its output is read") {
  Job job = started_job(2);
  job(UserSignal{SIGTERM});
  job(HostRanksGone{0});
  CHECK_FALSE(job.state.ranks_gone());
  REQUIRE(job.state.next_deadline().has_value());
  const auto deadline = *job.state.next_deadline();
  SECTION("which the other confirms as well") {
    job(HostRanksGone{1});
    CHECK(job.state.ranks_gone());
    CHECK(count<Finish>(job(ClockTick{true}, 1h)) == 0);
    CHECK(*job.state.next_deadline() > job.now);
    job(HostFinished{0, {}});
    SECTION("for its goodbye, of which no output is in the way") {
      CHECK(count<Finish>(job(ClockTick{}, 1h)) == 1);
    }
    SECTION("to its end") { CHECK(count<Finish>(job(HostFinished{1, {}})) == 1); }
    SECTION("until its stream breaks") {
      CHECK(count<Finish>(job(HostLost{1, "gone", job.now})) == 1);
    }
    SECTION("until its output has no reader") { CHECK(count<Finish>(job(OutputAbandoned{})) == 1); }
    SECTION("until the user does not want to wait") {
      job(UserSignal{SIGTERM});
      CHECK(count<Finish>(job(UserSignal{SIGTERM})) == 1);
    }
    CHECK(job.state.outcome().unconfirmed_hosts.empty());
  }
  SECTION("which the other does not confirm in time") {
    job(ClockTick{true}, std::chrono::duration_cast<Milliseconds>(deadline - job.now));
    CHECK_FALSE(job.state.done());
    CHECK(count<Finish>(job(HostFinished{0, {}})) == 1);
    CHECK(job.state.outcome().unconfirmed_hosts == std::vector<int>{1});
  }
  CHECK(job.state.outcome().exit_code() == 143);
}

TEST_CASE("a host that gets no time to confirm its end is waited for") {
  Job job = started_job(1);
  job(UserSignal{SIGTERM});
  for (int times = 0; times < 100; ++times) {
    const auto left = *job.state.next_deadline() - job.now;
    CHECK(job(StillEnding{}, std::chrono::duration_cast<Milliseconds>(left)).empty());
    REQUIRE(*job.state.next_deadline() > job.now);
  }
  SECTION("until it has") { CHECK(count<Finish>(job(HostFinished{0, {}})) == 1); }
  SECTION("until the user does not want to wait") {
    job(UserSignal{SIGTERM});
    CHECK(count<Finish>(job(UserSignal{SIGTERM})) == 1);
    CHECK(job.state.outcome().unconfirmed_hosts == std::vector<int>{0});
  }
}

TEST_CASE("a reader that goes away ends the job like SIGPIPE") {
  Job job = started_job(1);
  job(OutputClosed{});
  job(HostFinished{0, {}});
  REQUIRE(job.state.outcome().exit_code() == 141);
}

// Random events in random order: the machine ends, once, whatever comes.
TEST_CASE("random schedules always come to an end") {
  for (unsigned seed = 0; seed < 20'000; ++seed) {
    std::uint64_t random = seed * 0x9e3779b97f4a7c15ull + 1;
    const auto draw = [&](int n) {
      random ^= random << 13;
      random ^= random >> 7;
      random ^= random << 17;
      return static_cast<int>(random % static_cast<unsigned>(n));
    };
    const int hosts = 1 + draw(4);
    Job job(hosts);
    int finishes = 0;
    const auto feed = [&](const Event& event, Milliseconds later) {
      finishes += count<Finish>(job(event, later));
    };
    for (int i = 0; i < 40 && !job.state.done(); ++i) {
      const int host = draw(hosts);
      const Milliseconds later(draw(1000));
      switch (draw(9)) {
        case 0:
          feed(HostGreeted{host}, later);
          break;
        case 1:
          feed(HostReady{host}, later);
          break;
        case 2:
          feed(RankEnded{host, exited(draw(8), draw(3))}, later);
          break;
        case 3:
          feed(HostFinished{host, {}}, later);
          break;
        case 4:
          feed(HostFailed{host, {"E_X", "x", ""}}, later);
          break;
        case 5:
          feed(HostLost{host, "x", job.now}, later);
          break;
        case 6:
          feed(UserSignal{15}, later);
          break;
        case 7:
          feed(OutputClosed{}, later);
          break;
        default:
          feed(ClockTick{}, later);
          break;
      }
    }
    // Whatever state it is in now, Ctrl-C three times is the end.
    for (int i = 0; i < 3; ++i) feed(UserSignal{2}, 1ms);
    INFO("seed " << seed);
    REQUIRE(job.state.done());
    REQUIRE(finishes == 1);
  }
}

TEST_CASE("a goodbye before every rank's end was reported is a failure") {
  Job job = started_job(1);
  job(HostFinished{0, {}, 1});
  REQUIRE(job.state.done());
  REQUIRE(job.state.outcome().exit_code() == 125);
  CHECK(job.state.outcome().cause->failure.code == failure::kProtocol);
}

TEST_CASE("asking again for the end never makes it later") {
  JobState::Options options;
  options.grace = 100ms;
  Job job = started_job(1, options);
  job(UserSignal{2});
  const auto first = *job.state.next_deadline();
  job(UserSignal{2}, 3'050ms);
  CHECK(*job.state.next_deadline() <= first);
}

namespace {

struct ElasticJob {
  ElasticJob() : state(elastic(), now) {}
  static JobState::Options elastic() {
    JobState::Options options;
    options.hosts = 0;
    options.elastic = true;
    return options;
  }
  std::vector<Action> operator()(const Event& event) { return state.step(event, now); }
  int added() {
    (*this)(HostAdded{});
    (*this)(HostGreeted{hosts});
    (*this)(HostReady{hosts});
    return hosts++;
  }

  TimePoint now{};
  int hosts = 0;
  JobState state;
};

}  // namespace

TEST_CASE("An elastic job goes on whatever becomes of its hosts and ranks") {
  ElasticJob job;
  CHECK(!job.state.next_deadline());
  const int a = job.added();
  const int b = job.added();
  const int c = job.added();
  job(ElasticBegun{});
  CHECK(job.state.started());
  RankExit exit;
  exit.rank = 1;
  exit.signal = 9;
  CHECK(job(RankEnded{b, exit}).empty());
  REQUIRE(job(HostDismissed{b}).size() == 1);
  job(HostFinished{b, Goodbye{}});
  job(HostLost{c, "gone", job.now});
  job(HostFailed{a, Failure{"E_AGENT", "died", ""}});
  CHECK(!job.state.ending());  // others may come
  const int d = job.added();
  const auto actions = job(ElasticOver{std::nullopt});
  REQUIRE(actions.size() == 1);
  CHECK(std::get<TerminateHost>(actions[0]).host == d);
  job(HostFinished{d, Goodbye{}});
  CHECK(job.state.done());
  CHECK(job.state.outcome().exit_code() == 0);
  CHECK(job.state.outcome().unconfirmed_hosts == std::vector<int>{c});
}

TEST_CASE("An elastic job that is over has the cause that it is given, and no later one") {
  ElasticJob job;
  const int a = job.added();
  job(HostAdded{});  // being connected: nothing runs there yet
  Cause cause;
  cause.kind = Cause::Kind::kRank;
  cause.exit_code = 7;
  const auto actions = job(ElasticOver{cause});
  REQUIRE(actions.size() == 2);
  CHECK(std::holds_alternative<DropHost>(actions[1]));
  RankExit exit;
  exit.exit_code = 9;
  job(RankEnded{a, exit});
  job(HostFinished{a, Goodbye{}});
  CHECK(job.state.done());
  CHECK(job.state.outcome().exit_code() == 7);
}

TEST_CASE("Time and the user end an elastic job as any other") {
  ElasticJob job;
  const int a = job.added();
  job(UserSignal{2});
  CHECK(job.state.ending());
  job(HostFinished{a, Goodbye{}});
  CHECK(job.state.done());
  CHECK(job.state.outcome().exit_code() == 130);
}

TEST_CASE(
    "The owner of the hosts may have caused an end by signals or without hosts, but no other") {
  const auto ended_by = [](const Event& event) {
    Job job = started_job(1);
    job(event);
    job(HostFinished{0, Goodbye{}});
    REQUIRE(job.state.done());
    return job.state;
  };
  RankExit killed;
  killed.signal = 15;
  CHECK(ended_by(RankEnded{0, killed}).may_be_ended_from_outside());
  CHECK(ended_by(RankEnded{0, exited(0, 143)}).may_be_ended_from_outside());
  CHECK(ended_by(UserSignal{15}).may_be_ended_from_outside());
  CHECK(ended_by(HostFailed{0, Failure{"E_X", "", ""}}).may_be_ended_from_outside());
  CHECK_FALSE(ended_by(UserSignal{2}).may_be_ended_from_outside());
  CHECK_FALSE(ended_by(RankEnded{0, exited(0, 7)}).may_be_ended_from_outside());
  CHECK_FALSE(ended_by(OutputClosed{}).may_be_ended_from_outside());

  JobState state = ended_by(RankEnded{0, killed});
  state.set_cause({std::string(failure::kEngine), "cancelled", ""});
  CHECK(state.outcome().cause->failure.message == "cancelled");
  CHECK(state.outcome().exit_code() == 125);
}
