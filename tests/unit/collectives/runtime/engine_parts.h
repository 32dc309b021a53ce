// SPDX-License-Identifier: Apache-2.0
// The parts of an engine around a channel that is played by the test, and operations for them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/runtime/negotiator.h"
#include "collectives/runtime/shutdown.h"
#include "collectives/runtime/stall_monitor.h"
#include "collectives/runtime/step_runner.h"
#include "tests/support/catch.h"
#include "tests/unit/collectives/runtime/played_channel.h"

namespace hora::test {

using collectives::BackendPool;
using collectives::Mailbox;
using collectives::Negotiator;
using collectives::Observer;
using collectives::Operation;
using collectives::OperationPtr;
using collectives::ProcessSet;
using collectives::ProcessSets;
using collectives::Request;
using collectives::RequestQueue;
using collectives::Shutdown;
using collectives::StallMonitor;
using collectives::StepRunner;
using collectives::Tuner;

// A set of these ranks, with a response cache and no backends.
inline std::unique_ptr<ProcessSet> set_of(std::int32_t id, std::vector<std::int32_t> ranks,
                                          int index) {
  auto set = std::make_unique<ProcessSet>();
  set->id = id;
  set->ranks = std::move(ranks);
  set->index = index;
  set->cache = collectives::ResponseCache(16);
  return set;
}

// An allreduce of one float, in place.
inline Request allreduce(const std::string& name, std::int32_t set = 0) {
  Request request;
  request.action = collectives::Action::kAllreduce;
  request.process_set = set;
  request.dtype = HORA_FLOAT32;
  request.name = name;
  request.shape = {1};
  return request;
}

// What any rank has, whatever it does: the world with all ranks, and a queue.
struct Base {
  World world;
  PlayedChannel* channel;
  Mailbox mailbox;
  ProcessSets sets;
  RequestQueue queue;
  Observer observer;
  Tuner tuner;

  Base(int rank, int size) : Base(rank, size, std::make_unique<PlayedChannel>()) {}

  // Through the queue, as if a caller had submitted it.
  OperationPtr submit(Request request) {
    OperationPtr operation = collectives::make_operation();
    operation->name_hash = collectives::name_hash(request.process_set, request.name);
    operation->request = std::move(request);
    operation->input = operation->output = &value;
    operation->count = 1;
    operation->submitted = Clock::now();
    std::string detail;
    const auto pushed = queue.push({&operation, 1}, detail);
    if (pushed == RequestQueue::Push::kDuplicate || pushed == RequestQueue::Push::kClosed) {
      FAIL("not accepted: " << detail);
    }
    std::vector<OperationPtr> taken;
    queue.take(taken);
    return operation;
  }
  // Whether the name of an operation may be used again.
  bool is_free(const std::string& name) {
    const OperationPtr operation = collectives::make_operation();
    operation->request = allreduce(name);
    operation->name_hash = collectives::name_hash(0, name);
    std::string detail;
    return queue.push({&operation, 1}, detail) != RequestQueue::Push::kDuplicate;
  }

  float value = 1;

 private:
  Base(int rank, int size, std::unique_ptr<PlayedChannel> made)
      : world(world_of(rank, size)), channel(made.get()), mailbox(std::move(made), rank) {
    sets.add(set_of(0, world.ranks(), rank));
  }
};

// With what can end the world; `failed` has the reasons given to the operations.
struct BaseWithEnd : Base {
  BackendPool pool{world, nullptr};
  std::vector<std::string> failed;
  Shutdown shutdown{world, mailbox, pool, observer,
                    [this](const std::string& text) { failed.push_back(text); }};
  StallMonitor stalls{world, mailbox, shutdown, std::nullopt};

  BaseWithEnd(int rank, int size) : Base(rank, size) { REQUIRE(stalls.start(sets.table())); }
};

}  // namespace hora::test
