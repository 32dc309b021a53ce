// SPDX-License-Identifier: Apache-2.0
// A non-blocking communicator: each call returns ncclInProgress and continues in NCCL's threads.
// settle() polls until it has finished, so that an abort or a deadline can end the wait.
#include "collectives/backends/nccl/communicator.h"

#include <sched.h>

#include <thread>

namespace hora::collectives::nccl {

std::unique_ptr<NcclCommunicator> NcclCommunicator::join(const Nccl& nccl, const ncclUniqueId& id,
                                                         int rank, int size,
                                                         const std::atomic<bool>& aborted,
                                                         std::chrono::milliseconds patience,
                                                         ErrorText& error) {
  std::unique_ptr<NcclCommunicator> self(new NcclCommunicator(nccl, aborted));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  // Joining blocks until all ranks have come, unless the communicator is non-blocking.
  config.blocking = 0;
  const ncclResult_t result =
      nccl.ncclCommInitRankConfig(&self->communicator_, size, id, rank, &config);
  if (!check(nccl, result, "ncclCommInitRankConfig", nullptr, error) ||
      !self->settle("waiting for all ranks to make an NCCL communicator", Clock::now() + patience,
                    error)) {
    // Destroying a communicator that is not complete would wait for the missing ranks.
    self->break_off();
    return nullptr;
  }
  return self;
}

// A regular destruction is collective; after an abort no other rank takes part.
NcclCommunicator::~NcclCommunicator() {
  if (communicator_ == nullptr) return;
  if (aborted_) {
    break_off();
  } else {
    nccl_.ncclCommDestroy(communicator_);
  }
}

bool NcclCommunicator::settle(const char* what, Clock::time_point deadline, ErrorText& error) {
  for (int round = 0;; ++round) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = nccl_.ncclCommGetAsyncError(communicator_, &state);
    if (!check(nccl_, asked, what, communicator_, error)) return false;
    if (state != ncclInProgress) return check(nccl_, state, what, communicator_, error);
    if (aborted_.load(std::memory_order_relaxed)) return error.set("%s: the job is ending", what);
    // Operations have no deadline: an abort ends their wait.
    if (Clock::now() > deadline)
      return error.set("%s: timed out waiting for the other ranks", what);
    // Yield at first; a slow call must not occupy a core.
    if (round < 1000) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
}

bool NcclCommunicator::group(const char* what, const Calls& calls, ErrorText& error) {
  // A call on a failed communicator would report its old error under a new name.
  if (!is_healthy(error)) return false;
  if (!check(nccl_, nccl_.ncclGroupStart(), what, communicator_, error)) return false;
  const ncclResult_t given = calls(communicator_);
  // Every ncclGroupStart() needs its end, even after a failed call.
  const ncclResult_t ended = nccl_.ncclGroupEnd();
  return check(nccl_, given, what, communicator_, error) &&
         check(nccl_, ended, what, communicator_, error) &&
         settle(what, Clock::time_point::max(), error);
}

bool NcclCommunicator::is_healthy(ErrorText& error) {
  if (communicator_ == nullptr || aborted_) return error.set("the job is ending");
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = nccl_.ncclCommGetAsyncError(communicator_, &state);
  return check(nccl_, asked, "ncclCommGetAsyncError", communicator_, error) &&
         check(nccl_, state, "NCCL", communicator_, error);
}

void NcclCommunicator::break_off() {
  if (communicator_ == nullptr) return;
  nccl_.ncclCommAbort(communicator_);
  communicator_ = nullptr;
}

}  // namespace hora::collectives::nccl
