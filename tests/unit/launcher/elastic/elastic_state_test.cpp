// SPDX-License-Identifier: Apache-2.0
#include "launcher/elastic/elastic_state.h"

#include <algorithm>

#include "launcher/failures/failure_code.h"
#include "tests/support/catch.h"

using namespace hora::launcher;
using namespace hora::launcher::elastic;
using namespace std::chrono_literals;

namespace {

// A job with a clock of its own, whose agents answer on request.
struct Job {
  explicit Job(ElasticOptions options, const std::string& hosts)
      : state(
            options, [] { return 0.0; }, now) {
    list(hosts);
  }
  void operator()(const ElasticEvent& event, Milliseconds later = 0ms) {
    now += later;
    last = state.step(event, now);
    for (const auto& action : last) {
      if (const auto* message = std::get_if<Message>(&action)) texts.push_back(message->text);
      if (const auto* connect = std::get_if<Connect>(&action))
        connecting.push_back(connect->incarnation);
      if (std::holds_alternative<BeginEpoch>(action)) ++epochs;
      if (std::holds_alternative<NotifyWorkers>(action)) ++notifications;
    }
  }
  void list(const std::string& hosts) {
    (*this)(HostsListed{hosts.empty() ? std::vector<Host>{} : *parse_host_list(hosts, "test")});
  }
  // All agents that were asked for answer, and take their orders.
  void agents_answer() {
    for (const IncarnationId id : std::exchange(connecting, {})) (*this)(AgentGreeted{id});
    for (const IncarnationId id : std::vector<IncarnationId>(state.new_incarnations()))
      (*this)(elastic::AgentReady{id});
  }
  WorkerId at(int rank) const { return state.seats()[static_cast<std::size_t>(rank)].worker; }
  void ask(int rank) { (*this)(WorkerAsked{at(rank), true}); }
  void exit(int rank, int code, int signal = 0) {
    RankExit exit;
    exit.rank = at(rank);
    exit.exit_code = code;
    exit.signal = signal;
    (*this)(WorkerEnded{at(rank), exit, std::chrono::nanoseconds(now.time_since_epoch())});
  }
  template <typename T>
  bool did() const {
    return std::any_of(last.begin(), last.end(),
                       [](const auto& action) { return std::holds_alternative<T>(action); });
  }
  std::string plan() const { return describe_plan(state.plan()); }
  int exit_code() const { return state.cause() ? state.cause()->exit_code : 0; }

  TimePoint now{};
  ElasticState state;
  std::vector<ElasticAction> last;
  std::vector<std::string> texts;
  std::vector<IncarnationId> connecting;
  int epochs = 0;
  int notifications = 0;
};

ElasticOptions options(int np, int min_np) {
  ElasticOptions made;
  made.np = np;
  made.min_np = min_np;
  return made;
}

Job running(ElasticOptions made, const std::string& hosts) {
  Job job(made, hosts);
  job.agents_answer();
  REQUIRE(job.epochs == 1);
  return job;
}

}  // namespace

TEST_CASE("the first epoch begins with every host that is there, -np or more ranks") {
  Job job(options(2, 2), "a:2,b:2");
  CHECK(job.connecting.size() == 2);
  job(AgentGreeted{0});
  CHECK(!job.did<PrepareEpoch>());  // b is being connected: it is waited for
  job(AgentGreeted{1});
  CHECK(job.did<PrepareEpoch>());
  CHECK(job.plan() == "4 ranks: a:2, b:2");
  job(elastic::AgentReady{0});
  CHECK(!job.did<BeginEpoch>());
  job(elastic::AgentReady{1});
  CHECK(job.did<BeginEpoch>());
  CHECK(job.texts.back() == "elastic epoch 1: 4 ranks: a:2, b:2");
}

TEST_CASE("a host that does not answer is not waited for longer than the start timeout") {
  Job job(options(2, 2), "a:2,b:2");
  job(AgentGreeted{0});
  CHECK(job.state.next_deadline() == job.now + 30s);
  job(Tick{}, 30s);
  CHECK(job.did<PrepareEpoch>());
  CHECK(job.plan() == "2 ranks: a:2");
}

TEST_CASE("too few hosts at the start: what is missing is said once, and more are waited for") {
  Job job(options(4, 2), "a:2");
  job.agents_answer();
  const std::string expected =
      "the job needs 4 ranks to start (-np), and the hosts that can be used have room for 2 ranks: "
      "a:2; it waits for more, 10m at the most";
  REQUIRE(job.texts.size() == 1);
  CHECK(job.texts.back().find(expected) == 0);
  job(Tick{}, 5s);
  CHECK(job.texts.size() == 1);
  job.list("a:2,b:2");
  job.agents_answer();
  CHECK(job.plan() == "4 ranks: a:2, b:2");
}

TEST_CASE("all ranks end well: success") {
  Job job = running(options(2, 2), "a:1,b:1");
  job.exit(1, 0);
  CHECK(!job.state.over());
  job.exit(0, 0);
  CHECK(job.did<EndJob>());
  CHECK(!job.state.cause());
}

TEST_CASE("a rank that dies costs its host; the others go on in their order") {
  Job job = running(options(6, 2), "a:2,b:2,c:2");
  const auto before = job.state.seats();
  job.exit(3, 0, 9);
  CHECK(job.did<EndIncarnation>());
  for (const int rank : {0, 1, 4, 5}) {
    CHECK(job.epochs == 1);
    job(WorkerAsked{before[static_cast<std::size_t>(rank)].worker, true});
  }
  CHECK(job.epochs == 2);
  CHECK(job.plan() == "4 ranks: a:2, c:2");
  CHECK(job.at(2) == before[4].worker);
  CHECK(job.at(3) == before[5].worker);
  CHECK(job.texts[1].find("host b: rank 3 was killed by SIGKILL") == 0);
}

TEST_CASE("a host whose agent is lost costs its ranks") {
  Job job = running(options(4, 2), "a:2,b:2");
  job(AgentGone{1, Failure{std::string(failure::kHostLost), "no sign of life for 10 s", ""}});
  job.ask(0);
  job.ask(1);
  CHECK(job.plan() == "2 ranks: a:2");
  job.exit(0, 0);
  job.exit(1, 0);
  CHECK(job.state.over());
  CHECK(job.exit_code() == 0);
}

TEST_CASE("too few left of hosts that are fixed: the job ends with what they failed of") {
  ElasticOptions made = options(4, 3);
  made.hosts_are_fixed = true;
  Job job = running(made, "a:2,b:2");
  job.exit(2, 7);
  job.ask(0);
  job.ask(1);
  CHECK(job.state.over());
  CHECK(job.exit_code() == 7);
  CHECK(job.state.cause()->exit.rank == 2);
}

TEST_CASE("too few left of hosts that are discovered: others are waited for, and not for ever") {
  Job job = running(options(4, 3), "a:2,b:2");
  job.exit(2, 7);
  job.ask(0);
  job.ask(1);
  CHECK(!job.state.over());
  const auto& message = job.texts.back();
  CHECK(
      message.find("the job needs 3 ranks to go on (--min-np), and the hosts that can be used have "
                   "room for 2 ranks: a:2; it waits for more, 10m at the most") == 0);
  SECTION("another comes") {
    job.list("a:2,b:2,c:1");
    job.agents_answer();
    CHECK(job.plan() == "3 ranks: a:2, c:1");
    CHECK(job.epochs == 2);
  }
  SECTION("no host comes") {
    CHECK(job.state.next_deadline() == job.now + 600s);
    job(DiscoveryFailed{"exit code 3"});
    job(Tick{}, 600s);
    CHECK(job.state.over());
    CHECK(job.exit_code() == 124);
    CHECK(job.state.cause()->failure.message.find("exit code 3") != std::string::npos);
  }
}

TEST_CASE("a host that its engine has taken is a new one when it is given again") {
  const bool takes = GENERATE(true, false);
  ElasticOptions made = options(4, 2);
  made.engine_takes_hosts = takes;
  Job job = running(made, "a:2,b:2");
  job(AgentGone{1, Failure{std::string(failure::kHostLost), "killed", ""}});
  job.list("a:2");
  job.ask(0);
  job.ask(1);
  REQUIRE(job.epochs == 2);
  job.list("a:2,b:2");
  CHECK(job.did<Connect>() == takes);
}

TEST_CASE("an allocation that has ended ends the job") {
  Job job = running(options(4, 2), "a:2,b:2");
  job(AllocationEnded{Failure{std::string(failure::kEngine), "job 1 is CANCELLED", ""}});
  CHECK(job.state.over());
  CHECK(job.exit_code() == 125);
  CHECK(job.state.cause()->failure.message == "job 1 is CANCELLED");
}

TEST_CASE("a host that comes is connected before the ranks are notified") {
  Job job = running(options(2, 2), "a:2");
  job.list("a:2,b:2");
  CHECK(job.notifications == 0);
  job(AgentGreeted{1});
  CHECK(job.notifications == 1);
  CHECK(std::get<NotifyWorkers>(job.last.front()).change == PlanChange{false, true});
  job.ask(0);
  job.ask(1);
  CHECK(job.did<PrepareEpoch>());
  job(elastic::AgentReady{1});
  CHECK(job.plan() == "4 ranks: a:2, b:2");
  CHECK(!job.state.seats()[0].is_new);
  CHECK(job.state.seats()[2].is_new);
  CHECK(job.notifications == 1);
}

TEST_CASE("hosts that come one after the other cost one epoch") {
  Job job = running(options(2, 2), "a:2");
  job.list("a:2,b:1,c:1");
  job(AgentGreeted{1});
  CHECK(job.notifications == 0);
  SECTION("both answer") {
    job(AgentGreeted{2});
    CHECK(job.notifications == 1);
  }
  SECTION("one takes too long") {
    CHECK(job.state.next_deadline() == job.now + 5s);
    job(Tick{}, 5s);
    CHECK(job.notifications == 1);
    CHECK(job.state.next_deadline() > job.now);
  }
}

TEST_CASE("a host that goes: its ranks are sent away once the others have met") {
  Job job = running(options(4, 2), "a:2,b:2");
  job.list("b:2");
  CHECK(job.notifications == 1);
  const auto before = job.state.seats();
  for (int rank = 0; rank < 4; ++rank) {
    job(WorkerAsked{before[static_cast<std::size_t>(rank)].worker, true});
  }
  CHECK(job.epochs == 2);
  CHECK(job.plan() == "2 ranks: b:2");
  CHECK(job.at(0) == before[2].worker);
  CHECK(job.state.dismissed() == std::vector<WorkerId>{before[0].worker, before[1].worker});
  job(Tick{}, 20s);
  CHECK(job.did<EndWorker>());
  CHECK(job.state.next_deadline() == std::nullopt);
}

TEST_CASE("a rank that neither ends nor comes is fenced with its host") {
  Job job = running(options(4, 1), "a:2,b:2");
  job.exit(0, 0, 11);
  job.ask(2);
  CHECK(job.state.next_deadline() == job.now + 600s);
  job(Tick{}, 600s);
  CHECK(job.did<EndIncarnation>());
  CHECK(job.state.over());  // with b, the last one that had asked was lost, too
  CHECK(job.exit_code() == 139);

  Job other = running(options(3, 1), "a:1,b:1,c:1");
  other.exit(0, 0, 11);
  other.ask(2);
  other(Tick{}, 600s);
  CHECK(other.epochs == 2);
  CHECK(other.plan() == "1 rank: c:1");
}

TEST_CASE("one rank has succeeded: the others do not meet again") {
  Job job = running(options(3, 1), "a:1,b:1,c:1");
  job.exit(0, 0);
  job.ask(1);
  CHECK(!job.state.over());
  SECTION("the last one asks") {
    job.ask(2);
    CHECK(job.state.over());
    CHECK(job.exit_code() == 0);
  }
  SECTION("the last one fails") {
    job.exit(2, 3);
    CHECK(job.state.over());
    CHECK(job.exit_code() == 3);
  }
}

TEST_CASE("every rank fails: the first one is the cause") {
  Job job = running(options(2, 1), "a:1,b:1");
  job.now += 5ms;
  const auto late = job.at(0);
  job.exit(1, 4);
  RankExit exit;
  exit.rank = late;
  exit.exit_code = 9;
  job(WorkerEnded{late, exit, std::chrono::nanoseconds(1)});  // it ended first
  CHECK(job.state.over());
  CHECK(job.exit_code() == 9);
}

TEST_CASE("the reset limit") {
  ElasticOptions made = options(3, 1);
  made.reset_limit = 1;
  Job job = running(made, "a:1,b:1,c:1");
  job.exit(2, 1);
  job.ask(0);
  job.ask(1);
  CHECK(job.epochs == 2);
  job.list("a:1,b:1,c:1,d:1");  // not worth an epoch that may not be
  job.agents_answer();
  CHECK(job.notifications == 0);
  job.exit(1, 1);
  job.ask(0);
  CHECK(job.state.over());
  CHECK(job.state.cause()->failure.code == failure::kResetLimit);
}

TEST_CASE("with a cool-down a host returns") {
  ElasticOptions made = options(2, 1);
  made.cooldown = CooldownRange{1s, 10s};
  Job job = running(made, "a:1,b:1");
  job.exit(1, 1);
  job.ask(0);
  CHECK(job.plan() == "1 rank: a:1");
  job(AgentGone{1, std::nullopt});
  CHECK(job.state.next_deadline() == job.now + 2s);
  job(Tick{}, 2s);
  CHECK(job.connecting.size() == 1);
  job.agents_answer();
  CHECK(job.notifications == 1);
  job.ask(0);
  job.agents_answer();
  CHECK(job.plan() == "2 ranks: a:1, b:1");
}

TEST_CASE("more slots on a host: a second agent for the new ranks") {
  Job job = running(options(2, 1), "a:2");
  job.list("a:3");
  CHECK(job.connecting.size() == 1);
  job(AgentGreeted{1});
  job.ask(0);
  job.ask(1);
  job(elastic::AgentReady{1});
  CHECK(job.plan() == "3 ranks: a:3");
  CHECK(job.state.seats()[2] == ElasticState::Seat{2, 1, true});
  CHECK(job.state.local_rank_of(2) == 2);
  job.list("a:1");
  for (int rank = 2; rank >= 0; --rank) job.ask(rank);
  CHECK(job.plan() == "1 rank: a:1");
  CHECK(job.state.dismissed().size() == 2);
}

TEST_CASE("an order that cannot be prepared: the epoch is planned again without that host") {
  Job job = running(options(1, 1), "a:1");
  job.list("a:1,b:1,c:1");
  job(AgentGreeted{1});
  job(AgentGreeted{2});
  job.ask(0);
  CHECK(job.did<PrepareEpoch>());
  job(elastic::AgentReady{2});
  job(AgentGone{1, Failure{std::string(failure::kCwd), "no such directory", ""}});
  CHECK(job.epochs == 1);
  // c's agent has an order that is void now: another one takes its place.
  job(AgentGreeted{3});
  job(elastic::AgentReady{3});
  CHECK(job.epochs == 2);
  CHECK(job.plan() == "2 ranks: a:1, c:1");
}

TEST_CASE("a survivor that dies while the others are waited for") {
  Job job = running(options(2, 2), "a:1,b:1");
  job.list("a:1,b:1,c:1");
  job(AgentGreeted{2});
  job.ask(0);
  job.ask(1);
  CHECK(job.did<PrepareEpoch>());
  job(AgentGone{0, Failure{std::string(failure::kHostLost), "gone", ""}});
  job(AgentGreeted{3});
  job(elastic::AgentReady{3});
  CHECK(job.epochs == 2);
  CHECK(job.plan() == "2 ranks: b:1, c:1");
}

TEST_CASE("only ranks without the state are left: the job ends") {
  Job job = running(options(1, 1), "a:1");
  job.list("a:1,b:1");
  job(AgentGreeted{1});
  job.ask(0);
  job(elastic::AgentReady{1});
  REQUIRE(job.epochs == 2);
  job.exit(0, 0, 9);
  job(WorkerAsked{job.at(1), false});
  CHECK(job.state.over());
  CHECK(job.exit_code() == 137);
}

TEST_CASE("an order that is void is not used for the next plan") {
  Job job = running(options(1, 1), "a:1");
  job.list("a:1,b:1,c:1");
  job(AgentGreeted{1});
  job(AgentGreeted{2});
  job.ask(0);
  REQUIRE(job.did<PrepareEpoch>());
  job(AgentGone{1, Failure{std::string(failure::kCwd), "no such directory", ""}});
  CHECK(job.did<EndIncarnation>());  // c's agent, whose order speaks of a plan with b
  job(AgentGreeted{3});
  CHECK(job.epochs == 1);
  job(elastic::AgentReady{3});
  CHECK(job.epochs == 2);
  REQUIRE(job.state.seats().size() == 2);
  CHECK(job.state.seats()[1].incarnation == 3);
}

TEST_CASE("a worker that dies while it waits for its dismissal is not dismissed") {
  Job job = running(options(2, 1), "a:1,b:1");
  job.list("b:1,c:1");
  job(AgentGreeted{2});
  job.ask(0);
  job.ask(1);
  REQUIRE(job.state.dismissed().size() == 1);
  job(AgentGone{0, Failure{std::string(failure::kHostLost), "gone", ""}});
  job(elastic::AgentReady{2});
  CHECK(job.epochs == 2);
  CHECK(job.plan() == "2 ranks: b:1, c:1");
  CHECK(job.state.dismissed().empty());
  CHECK(job.state.next_deadline() == std::nullopt);
}

TEST_CASE("a host that the others cannot connect to is left out after three epochs") {
  Job job = running(options(3, 2), "a:1,b:1,c:1");
  for (const int epoch : {1, 2, 3}) {
    CHECK(job.epochs == epoch);
    CHECK(job.plan() == "3 ranks: a:1, b:1, c:1");
    job(PeerUnreached{epoch, 2, false, 0});
    for (const int rank : {0, 1, 2}) job.ask(rank);
  }
  CHECK(job.epochs == 4);
  CHECK(job.plan() == "2 ranks: a:1, b:1");
  CHECK(std::count(job.texts.begin(), job.texts.end(),
                   "host c: no connection between it and a in 3 meetings in a row; it takes no "
                   "further part (--blacklist-cooldown-range)") == 1);
}

TEST_CASE("too few hosts are left that can connect to each other: the job says which cannot") {
  ElasticOptions made = options(2, 2);
  made.hosts_are_fixed = true;
  Job job = running(made, "a:1,b:1");
  for (const int epoch : {1, 2, 3}) {
    job(PeerUnreached{epoch, 1, true, 0});
    for (const int rank : {0, 1}) job.ask(rank);
  }
  CHECK(job.did<EndJob>());
  REQUIRE(job.state.cause());
  CHECK(job.state.cause()->failure.code == failure::kNetwork);
  CHECK(job.state.cause()->failure.message ==
        "no connection between it and a in 3 meetings in a row");
}

TEST_CASE("what was unreached in an epoch that is gone, or never was, counts for nothing") {
  Job job = running(options(2, 2), "a:1,b:1");
  for (const int epoch : {1, 2, 3, 4}) {
    job(PeerUnreached{epoch - 1, 1, false, 0});
    job(PeerUnreached{epoch, 7, false, 0});
    job(PeerUnreached{epoch, 1, true, 9});
    for (const int rank : {0, 1}) job.ask(rank);
  }
  CHECK(job.epochs == 5);
}

using namespace hora::launcher;
using namespace hora::launcher::elastic;

namespace {

HostOrder order_with_ranks(const std::vector<int>& ranks) {
  HostOrder order;
  for (const int rank : ranks) {
    order.ranks.push_back(
        {rank, 0, {{"HOROVOD_RANK", std::to_string(rank)}}, StdinSource::kStream});
  }
  return order;
}

}  // namespace

TEST_CASE("an agent gets its own new workers, by their numbers") {
  // Host 0 has two agents (0 and 3), host 1 has one.
  const std::vector<HostOrder> orders = {order_with_ranks({0, 1}), order_with_ranks({2})};
  const std::vector<ElasticState::Seat> seats = {{4, 0, false}, {9, 3, true}, {8, 1, true}};
  const HostOrder third = order_of_incarnation(orders, seats, 3, 1);
  REQUIRE(third.ranks.size() == 1);
  CHECK(third.ranks[0].rank == 9);
  CHECK(third.ranks[0].stdin_source == StdinSource::kStream);
  using Variables = std::vector<std::pair<std::string, std::string>>;
  CHECK(third.ranks[0].environment ==
        Variables{{"HOROVOD_RANK", "1"}, {"HORA_WORKER", "9"}, {"HORA_ROUND", "1"}});
  CHECK(order_of_incarnation(orders, seats, 1, 1).ranks[0].rank == 8);
}

TEST_CASE("standard input is for the ranks of the first epoch") {
  const HostOrder late = order_of_incarnation({order_with_ranks({0})}, {{5, 2, true}}, 2, 2);
  CHECK(late.ranks[0].stdin_source == StdinSource::kNull);
}
