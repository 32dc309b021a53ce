// SPDX-License-Identifier: Apache-2.0
// Steps on a backend that does what the test says.
#include "collectives/runtime/step_runner.h"

#include <map>

#include "tests/support/catch.h"
#include "tests/unit/collectives/runtime/engine_parts.h"

using namespace hora;
using namespace hora::collectives;
using test::allreduce;

namespace {

class PlayedBackend final : public Backend {
 public:
  Progress answer = Progress::kDone;  // of execute()
  bool own = false;                   // a failure began here
  int at_once = 1;
  std::map<std::uint64_t, Progress> progress;  // by ticket
  std::uint64_t last = 0;
  int looks = 0;

  Progress execute(const Step&, std::uint64_t* ticket, ErrorText& error) noexcept override {
    *ticket = ++last;
    if (answer == Progress::kFailed) fail(error);
    return progress[last] = answer;
  }
  Progress poll(std::uint64_t ticket, ErrorText& error) noexcept override {
    if (++looks == 100 && answer == Progress::kPending) return Progress::kDone;
    if (progress[ticket] == Progress::kFailed) fail(error);
    return progress[ticket];
  }
  void abort() noexcept override {}
  void destroy() noexcept override {}
  int most_under_way() const noexcept override { return at_once; }

 private:
  void fail(ErrorText& error) const {
    error.set("the cable is out");
    error.own = own;
  }
};

struct Books final : Observer {
  std::vector<std::string> lines;
  void step_begins(int place, std::span<const Response* const> step,
                   Clock::time_point) noexcept override {
    lines.push_back(std::to_string(place) + " begins " + step.front()->agreed.name);
  }
  void step_ends(int place, bool good, Clock::time_point) noexcept override {
    lines.push_back(std::to_string(place) + (good ? " ends" : " fails"));
  }
};

struct Runner : test::BaseWithEnd {
  PlayedBackend backend;
  Books books;
  StepRunner steps{{pool, queue, books, tuner, stalls, shutdown}};
  std::vector<std::unique_ptr<Response>> responses;

  explicit Runner(int rank = 1, int size = 2) : BaseWithEnd(rank, size) {
    ProcessSet& set = sets.world();
    set.backends.push_back({"played", Scope::kHosts, Algorithm::kBackend, 0, BackendPtr(&backend)});
    Capability row;
    row.operation = HORA_ALLREDUCE;
    set.table.push_back({"played", row});
  }
  ~Runner() {
    sets.world().backends.clear();
  }  // the base would outlive the backend that it destroys

  OperationPtr ask(const std::string& name, Action action = Action::kAllreduce) {
    Request request = allreduce(name);
    request.action = action;
    OperationPtr operation = submit(std::move(request));
    sets.world().pending.add(operation);
    return operation;
  }
  // One step of these.
  void run(const std::vector<OperationPtr>& operations) {
    std::vector<AgreedOp> agreed;
    for (const OperationPtr& each : operations) {
      auto made = std::make_unique<Response>();
      made->agreed = each->request;
      agreed.push_back({made.get(), nullptr, 0, each->name_hash,
                        sets.world().pending.find(each->name_hash, each->request.name)});
      responses.push_back(std::move(made));
    }
    std::vector<const AgreedOp*> step;
    for (const AgreedOp& each : agreed) step.push_back(&each);
    steps.run(sets.world(), step);
  }
};

}  // namespace

TEST_CASE("step_runner: a step that ends at once finishes its operations") {
  Runner runner;
  const OperationPtr x = runner.ask("x");
  const OperationPtr y = runner.ask("y");
  runner.run({x, y});
  for (const OperationPtr& each : {x, y}) {
    CHECK(each->done());
    CHECK(each->status == HORA_OK);
    CHECK(runner.is_free(each->request.name));
  }
  CHECK(runner.sets.world().pending.empty());
  CHECK_FALSE(runner.steps.something_under_way());
  CHECK(runner.books.lines == std::vector<std::string>{"0 begins x", "0 ends"});
}

TEST_CASE("step_runner: steps that may run at the same time end in any order") {
  Runner runner;
  runner.backend.answer = Progress::kPending;
  runner.backend.at_once = 2;
  const OperationPtr x = runner.ask("x");
  const OperationPtr y = runner.ask("y");
  runner.run({x});
  CHECK(runner.steps.something_under_way());
  CHECK(runner.steps.free_place() == 1);
  runner.run({y});
  CHECK_FALSE(runner.steps.look());
  runner.backend.progress[2] = Progress::kDone;
  CHECK(runner.steps.look());
  CHECK(y->done());
  CHECK_FALSE(x->done());
  CHECK(runner.steps.something_under_way());
  CHECK(runner.steps.free_place() == 1);
  runner.backend.progress[1] = Progress::kDone;
  CHECK(runner.steps.wait_for_steps(1));
  CHECK(x->done());
  CHECK_FALSE(runner.steps.something_under_way());
  CHECK(runner.books.lines ==
        std::vector<std::string>{"0 begins x", "1 begins y", "1 ends", "0 ends"});
}

TEST_CASE("step_runner: a step that has to run alone is waited for") {
  Runner runner;
  runner.backend.answer = Progress::kPending;
  const OperationPtr x = runner.ask("x");
  runner.run({x});  // the hundredth look finds it done
  CHECK(x->done());
  CHECK(runner.backend.looks == 100);
}

TEST_CASE("step_runner: a failure that began here is reported to rank 0 at once") {
  Runner runner;
  runner.backend.answer = Progress::kFailed;
  runner.backend.own = true;
  runner.channel->play({{0, false, control_message(ControlMessage::kAbort, "rank 1 broke it")}});
  const OperationPtr x = runner.ask("x");
  runner.run({x});
  const std::vector<std::string> sent = runner.channel->sent_to(0);
  REQUIRE(sent.size() == 1);
  CHECK(kind_of(sent.front()) == ControlMessage::kFailed);
  CHECK(sent.front().substr(1) == "allreduce 'x': the cable is out");
  CHECK(runner.failed == std::vector<std::string>{"rank 1 broke it"});
  CHECK(runner.shutdown.ended());
  CHECK_FALSE(x->done());  // it is pending again, and fails with the world
  CHECK(runner.sets.world().pending.find(x->name_hash, "x") == x.get());
  CHECK(runner.books.lines.back() == "0 fails");
}

TEST_CASE("step_runner: a failure while a rank shows no sign of life is that rank's") {
  Runner runner;
  runner.backend.answer = Progress::kFailed;
  runner.shutdown.interrupt({0});
  runner.run({runner.ask("x")});
  REQUIRE(runner.failed.size() == 1);
  CHECK(runner.failed.front().find("stalled in allreduce 'x'") == 0);
  CHECK(runner.failed.front().find("rank 0 (host0) does not answer") != std::string::npos);
}

TEST_CASE("step_runner: what no backend can do ends without harm to the world") {
  Runner runner;
  const OperationPtr x = runner.ask("x", Action::kBroadcast);
  runner.run({x});
  CHECK(x->status == HORA_UNSUPPORTED);
  CHECK_FALSE(runner.shutdown.ended());
}

TEST_CASE("step_runner: a rank that is asked to run what it never requested gives up") {
  Runner runner;
  const OperationPtr x = runner.ask("x");
  const OperationPtr never = make_operation();
  never->request = allreduce("y");
  runner.run({x, never});
  CHECK(runner.shutdown.text() == "rank 1 (host1): it was asked to run 'y' but never requested it");
  CHECK(runner.sets.world().pending.find(x->name_hash, "x") == x.get());
}

TEST_CASE("step_runner: a rank that has joined takes part without an operation") {
  Runner runner;
  Response response;
  response.agreed = allreduce("x");
  response.joined = {1};
  AgreedOp agreed;
  agreed.response = &response;
  runner.steps.run(runner.sets.world(), {&agreed});
  CHECK_FALSE(runner.shutdown.ended());
  CHECK(runner.backend.last == 1);
}

TEST_CASE("step_runner: at the end of the world what is under way is seen to its end") {
  Runner runner;
  runner.backend.answer = Progress::kPending;
  runner.backend.at_once = 2;
  const OperationPtr x = runner.ask("x");
  runner.run({x});
  runner.steps.abandon();
  CHECK(runner.backend.looks == 100);
  CHECK_FALSE(runner.steps.something_under_way());
  CHECK_FALSE(x->done());
  CHECK(runner.sets.world().pending.find(x->name_hash, "x") == x.get());
  CHECK(runner.books.lines.back() == "0 fails");
}
