// SPDX-License-Identifier: Apache-2.0
// Requests and responses of two ranks whose messages the test carries from one to the other.
#include "collectives/runtime/negotiator.h"

#include "tests/support/catch.h"
#include "tests/unit/collectives/runtime/engine_parts.h"

using namespace hora;
using namespace hora::collectives;
using test::allreduce;

namespace {

struct Rank : test::Base {
  Interruption interruption;
  Negotiator negotiator{{world, mailbox, sets, queue, observer, tuner, interruption}};

  using test::Base::Base;

  OperationPtr ask(Request request) {
    OperationPtr operation = submit(std::move(request));
    OperationPtr given = operation;
    negotiator.ask({&given, 1}, false);
    return operation;
  }
  // The last message to that rank, without its kind.
  std::string last_to(int rank, ControlMessage kind) {
    const std::vector<std::string> sent = channel->sent_to(rank);
    REQUIRE_FALSE(sent.empty());
    REQUIRE(kind_of(sent.back()) == kind);
    return sent.back().substr(1);
  }
};

// Both ask for it; rank 1 gets rank 0's response. Returns what both are to run.
std::pair<std::vector<AgreedOp>, std::vector<AgreedOp>> agree(Rank& rank0, Rank& rank1,
                                                              const Request& request) {
  rank0.ask(request);
  CHECK(rank0.negotiator.take_ready().empty());
  rank1.ask(request);
  REQUIRE(rank0.negotiator.handle_requests(1, rank1.last_to(0, ControlMessage::kRequests)));
  std::vector<AgreedOp> here = rank0.negotiator.take_ready();
  auto there = rank1.negotiator.handle_responses(rank0.last_to(1, ControlMessage::kResponses));
  REQUIRE(there);
  return {std::move(here), std::move(*there)};
}

}  // namespace

TEST_CASE("negotiator: what both ranks have asked for is agreed on, on both alike") {
  Rank rank0(0, 2);
  Rank rank1(1, 2);
  const auto [here, there] = agree(rank0, rank1, allreduce("x"));
  for (const auto* list : {&here, &there}) {
    REQUIRE(list->size() == 1);
    CHECK(list->front().response->status == HORA_OK);
    CHECK(list->front().response->agreed.name == "x");
    REQUIRE(list->front().mine != nullptr);
    CHECK(list->front().mine->request.name == "x");
  }
  const OperationPtr mine = take_pending(rank1.sets.world(), there.front());
  CHECK(mine.get() == there.front().mine);
  CHECK(rank1.sets.world().pending.empty());
}

TEST_CASE(
    "negotiator: an operation that was agreed on before is requested and answered by its number") {
  Rank rank0(0, 2);
  Rank rank1(1, 2);
  std::size_t in_full = 0;
  for (int round = 0; round < 2; ++round) {
    const auto [here, there] = agree(rank0, rank1, allreduce("a tensor with a long name"));
    REQUIRE(there.size() == 1);
    CHECK((here.front().number != 0) == (round > 0));
    CHECK(here.front().number == there.front().number);
    for (Rank* rank : {&rank0, &rank1}) {
      const auto& list = rank == &rank0 ? here : there;
      rank->queue.finish(take_pending(rank->sets.world(), list.front()), HORA_OK, {});
    }
    const std::size_t bytes = rank1.last_to(0, ControlMessage::kRequests).size();
    if (round == 0) in_full = bytes;
    if (round == 1) CHECK(bytes < in_full / 2);
  }
}

TEST_CASE("negotiator: a set that comes again is asked for, counted and answered as a whole") {
  Rank rank0(0, 2);
  Rank rank1(1, 2);
  for (int round = 0; round < 4; ++round) {
    CAPTURE(round);
    for (Rank* rank : {&rank1, &rank0}) {
      std::vector<OperationPtr> given;
      for (int tensor = 0; tensor < 10; ++tensor) {
        given.push_back(rank->submit(allreduce("tensor." + std::to_string(tensor))));
        // By what it was asked for before, as of one that is submitted once more.
        const auto& before = rank->sets.world().cache;
        given.back()->asked_as = before.number_of(given.back()->request.name);
      }
      rank->negotiator.ask(given, false);
    }
    const std::string asked = rank1.last_to(0, ControlMessage::kRequests);
    REQUIRE(rank0.negotiator.handle_requests(1, asked));
    const SequencePtr together = rank0.negotiator.take_ready_together();
    // In full, then by number one by one; then the list is known.
    REQUIRE((together != nullptr) == (round >= 2));
    const auto here =
        together == nullptr ? rank0.negotiator.take_ready() : rank0.negotiator.members(*together);
    CHECK(here.size() == 10);
    const std::string answer = rank0.last_to(1, ControlMessage::kResponses);
    const SequencePtr answered = rank1.negotiator.answered_together(answer);
    CHECK((answered != nullptr) == (round >= 2));
    if (round >= 2) CHECK(asked == answer);
    // Round 3: one of them has been looked up.
    if (round == 3) {
      CHECK(rank1.sets.world().pending.find(name_hash(0, "tensor.3"), "tensor.3") != nullptr);
      CHECK(rank1.negotiator.answered_together(answer) == nullptr);
    }
    const auto there = answered != nullptr ? rank1.negotiator.members(*answered)
                                           : *rank1.negotiator.handle_responses(answer);
    CHECK(there.size() == 10);
    for (const AgreedOp& each : here) {
      rank0.queue.finish(take_pending(rank0.sets.world(), each), HORA_OK, {});
    }
    for (const AgreedOp& each : there) {
      REQUIRE(each.mine != nullptr);
      rank1.queue.finish(take_pending(rank1.sets.world(), each), HORA_OK, {});
    }
    CHECK(rank1.sets.world().pending.empty());
  }
}

TEST_CASE("negotiator: a number that rank 0 does not know is asked for in full") {
  Rank rank0(0, 2);
  Rank rank1(1, 2);
  const auto agreed = agree(rank0, rank1, allreduce("x"));
  rank1.queue.finish(take_pending(rank1.sets.world(), agreed.second.front()), HORA_OK, {});
  rank1.ask(allreduce("x"));
  Rank forgetful(0, 2);
  REQUIRE(forgetful.negotiator.handle_requests(1, rank1.last_to(0, ControlMessage::kRequests)));
  REQUIRE(rank1.negotiator.handle_in_full(forgetful.last_to(1, ControlMessage::kInFull)));
  REQUIRE(forgetful.negotiator.handle_requests(1, rank1.last_to(0, ControlMessage::kRequests)));
  forgetful.ask(allreduce("x"));
  const auto ready = forgetful.negotiator.take_ready();
  REQUIRE(ready.size() == 1);
  CHECK(ready.front().response->status == HORA_OK);
}

TEST_CASE("negotiator: ranks that disagree get the same error") {
  Rank rank0(0, 2);
  Rank rank1(1, 2);
  Request other = allreduce("x");
  other.shape = {2};
  rank0.ask(allreduce("x"));
  rank1.ask(other);
  REQUIRE(rank0.negotiator.handle_requests(1, rank1.last_to(0, ControlMessage::kRequests)));
  const auto here = rank0.negotiator.take_ready();
  const auto there =
      rank1.negotiator.handle_responses(rank0.last_to(1, ControlMessage::kResponses));
  REQUIRE(here.size() == 1);
  REQUIRE(there);
  CHECK(here.front().response->status != HORA_OK);
  CHECK(here.front().response->error == there->front().response->error);
}

TEST_CASE("negotiator: an operation of a set that is gone is finished at once") {
  Rank rank1(1, 2);
  const OperationPtr operation = rank1.ask(allreduce("x", 7));
  REQUIRE(operation->done());
  CHECK(operation->status == HORA_ABORTED);
  CHECK(operation->error == "the process set was removed");
  CHECK(rank1.channel->sent_to(0).empty());
}

TEST_CASE("negotiator: only members of a set get its responses") {
  Rank rank0(0, 3);
  rank0.negotiator.coordinator()->add_set({0, 2});
  rank0.sets.add(test::set_of(1, {0, 2}, 0));
  rank0.ask(allreduce("x", 1));
  Rank rank2(2, 3);
  rank2.sets.add(test::set_of(1, {0, 2}, 1));
  rank2.ask(allreduce("x", 1));
  REQUIRE(rank0.negotiator.handle_requests(2, rank2.last_to(0, ControlMessage::kRequests)));
  CHECK(rank0.negotiator.take_ready().size() == 1);
  CHECK(rank0.channel->sent_to(1).empty());
  CHECK(rank0.channel->sent_to(2).size() == 1);
}

TEST_CASE("negotiator: what makes no sense is refused") {
  Rank rank0(0, 2);
  Rank rank1(1, 2);
  CHECK_FALSE(rank0.negotiator.handle_requests(1, "\x7f\x7f"));
  CHECK_FALSE(rank1.negotiator.handle_requests(0, ""));  // it does not coordinate
  CHECK_FALSE(rank1.negotiator.handle_in_full(""));
  CHECK_FALSE(rank1.negotiator.handle_responses("\x7f\x7f"));
  ItemWriter unknown;
  unknown.by_number({0, 99});
  CHECK_FALSE(rank1.negotiator.handle_responses(unknown.take()));
}

TEST_CASE("negotiator: rank 0 waits for ranks that do not read, until it is to stop") {
  Rank rank0(0, 2);
  Rank rank1(1, 2);
  rank0.ask(allreduce("x"));
  rank1.ask(allreduce("x"));
  REQUIRE(rank0.negotiator.handle_requests(1, rank1.last_to(0, ControlMessage::kRequests)));
  rank0.channel->stop_reading();
  rank0.interruption.stop("enough");
  CHECK(rank0.negotiator.take_ready().size() == 1);
}
