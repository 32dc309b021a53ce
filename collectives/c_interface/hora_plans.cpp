// SPDX-License-Identifier: Apache-2.0
// hora.h: operations that are prepared once and started many times.
#include "collectives/c_interface/calls.h"

using namespace hora::collectives;

// The world may end before the plan is freed, and nothing of it has to stay for the plan.
struct hora_plan {
  std::weak_ptr<Communicator> communicator;
  Plan operations;
};

namespace {

// Null when the world of the plan has ended; `status` and the last error then say so.
std::shared_ptr<Communicator> world_of(const hora_plan* plan, hora_status& status) {
  if (forked_from_a_rank) {
    status = not_initialized();
    return nullptr;
  }
  if (plan == nullptr) {
    status = fail(HORA_INVALID_ARGUMENT, "the plan is NULL");
    return nullptr;
  }
  // Cheaper than current(), which takes a lock that all calls share. A world that is just being
  // left refuses the operations itself.
  auto communicator = plan->communicator.lock();
  if (communicator == nullptr) {
    status =
        current() == nullptr
            ? not_initialized()
            : fail(HORA_ABORTED, "the plan belongs to a world that has ended: prepare it again");
  }
  return communicator;
}

hora_status timed_out(const Plan& plan, std::int64_t timeout_ms) {
  return fail(HORA_TIMED_OUT,
              "waited " + std::to_string(timeout_ms) + " ms for the plan that begins with '" +
                  plan.operations.front()->request.name + "'; it is still in flight");
}

hora_status outcome_of(const Plan& plan) {
  const Operation* const failed = plan.failed();
  return failed == nullptr ? HORA_OK : fail(failed->status, failed->error);
}

}  // namespace

extern "C" {

hora_status hora_prepare(const hora_request* requests, int32_t count, hora_plan** plan) {
  return guarded(__func__, [&] {
    const auto communicator = current();
    if (communicator == nullptr) return not_initialized();
    if (requests == nullptr || count < 1 || plan == nullptr) {
      return fail(HORA_INVALID_ARGUMENT,
                  "hora_prepare needs at least one request and room for the plan");
    }
    // Its operations have their memory and their record for good; a start allocates nothing. Owned
    // until it is handed over: after a refusal, or without memory, everything is released.
    auto made = std::make_unique<hora_plan>();
    made->communicator = communicator;
    const std::vector<hora_request> copies = copies_of(requests, count);
    const Outcome outcome = communicator->prepare(copies, made->operations);
    *plan = outcome.status == HORA_OK ? made.release() : nullptr;
    return report(outcome);
  });
}

hora_status hora_start(hora_plan* plan) {
  return guarded(__func__, [&] {
    hora_status status = HORA_OK;
    const auto communicator = world_of(plan, status);
    return communicator == nullptr ? status : report(communicator->start(plan->operations));
  });
}

hora_status hora_plan_poll(hora_plan* plan) {
  const hora_status status = hora_plan_wait(plan, 0);
  return status == HORA_TIMED_OUT ? fail(HORA_IN_PROGRESS, "") : status;
}

hora_status hora_plan_run(hora_plan* plan, int64_t timeout_ms) {
  return guarded(__func__, [&] {
    hora_status status = HORA_OK;
    const auto communicator = world_of(plan, status);
    if (communicator == nullptr) return status;
    bool done = false;
    const Outcome outcome = communicator->run(plan->operations, deadline_after(timeout_ms), done);
    if (outcome.status != HORA_OK) return report(outcome);
    return done ? outcome_of(plan->operations) : timed_out(plan->operations, timeout_ms);
  });
}

hora_status hora_plan_wait(hora_plan* plan, int64_t timeout_ms) {
  return guarded(__func__, [&] {
    if (plan == nullptr || !plan->operations.started) {
      return fail(HORA_INVALID_ARGUMENT, "the plan has not been started");
    }
    // A finished operation needs no world: its outcome can be read after the world has ended, too.
    if (!plan->operations.done()) {
      hora_status status = HORA_OK;
      const auto communicator = world_of(plan, status);
      if (communicator == nullptr) return status;
      if (!communicator->wait(plan->operations, deadline_after(timeout_ms))) {
        return timed_out(plan->operations, timeout_ms);
      }
    }
    return outcome_of(plan->operations);
  });
}

void hora_plan_free(hora_plan* plan) {
  // In a forked child another thread may have held a lock of the runtime at the fork.
  if (plan == nullptr || forked_from_a_rank) return;
  if (const auto communicator = plan->communicator.lock()) communicator->let_go(plan->operations);
  delete plan;
}

}  // extern "C"
