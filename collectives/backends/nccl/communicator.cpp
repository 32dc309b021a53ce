// SPDX-License-Identifier: Apache-2.0
// A non-blocking communicator: each call returns ncclInProgress and continues in NCCL's threads.
// settle() polls until it has finished, so that an abort or a deadline can end the wait.
//
// NCCL before 2.14 has none. There joining blocks, which a thread does in our place; the calls of
// an operation block until the GPU has them, and settle() finds that they have ended.
#include "collectives/backends/nccl/communicator.h"

#include <sched.h>

#include <condition_variable>
#include <mutex>
#include <thread>

namespace hora::collectives::nccl {

namespace {

constexpr const char* kJoining = "waiting for all ranks to make an NCCL communicator";

// Shared with a thread that may outlive the wait for it.
struct Joining {
  std::mutex mutex;
  std::condition_variable ended;
  bool has_ended = false;
  ncclResult_t result = ncclInternalError;
  ncclComm_t communicator = nullptr;
};

}  // namespace

std::unique_ptr<NcclCommunicator> NcclCommunicator::join(const Nccl& nccl, const Gpu& gpu,
                                                         const ncclUniqueId& id, int rank, int size,
                                                         const std::atomic<bool>& aborted,
                                                         std::chrono::milliseconds patience,
                                                         ErrorText& error) {
  std::unique_ptr<NcclCommunicator> self(new NcclCommunicator(nccl, aborted));
  const Clock::time_point deadline = Clock::now() + patience;
  const bool joined = nccl.ncclCommInitRankConfig == nullptr
                          ? self->join_in_a_thread(gpu, id, rank, size, deadline, error)
                          : self->join_at_once(id, rank, size, deadline, error);
  if (joined) return self;
  // Destroying a communicator that is not complete would wait for the missing ranks.
  self->break_off();
  return nullptr;
}

bool NcclCommunicator::join_at_once(const ncclUniqueId& id, int rank, int size,
                                    Clock::time_point deadline, ErrorText& error) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = nccl_.ncclCommInitRankConfig(&communicator_, size, id, rank, &config);
  return check(nccl_, result, "ncclCommInitRankConfig", nullptr, error) &&
         settle(kJoining, deadline, error);
}

// Nothing ends the call of an old NCCL before all ranks have come. So if that is too late, the
// thread is left behind, with what it may still make: the rank has failed, and its process ends.
bool NcclCommunicator::join_in_a_thread(const Gpu& gpu, const ncclUniqueId& id, int rank, int size,
                                        Clock::time_point deadline, ErrorText& error) {
  const auto joining = std::make_shared<Joining>();
  std::thread([joining, id, rank, size, init = nccl_.ncclCommInitRank, &cuda = gpu.cuda(),
               context = gpu.context()] {
    const Gpu::Current current(cuda, context);
    ncclComm_t made = nullptr;
    const ncclResult_t result = init(&made, size, id, rank);
    const std::lock_guard<std::mutex> lock(joining->mutex);
    joining->result = result;
    joining->communicator = made;
    joining->has_ended = true;
    joining->ended.notify_all();
  }).detach();
  std::unique_lock<std::mutex> lock(joining->mutex);
  while (!joining->has_ended) {
    if (aborted_.load(std::memory_order_relaxed))
      return error.set("%s: the job is ending", kJoining);
    if (Clock::now() > deadline) {
      return error.set("%s: timed out waiting for the other ranks", kJoining);
    }
    // Whoever aborts does not notify.
    joining->ended.wait_for(lock, std::chrono::milliseconds(10));
  }
  communicator_ = joining->communicator;
  return check(nccl_, joining->result, "ncclCommInitRank", nullptr, error);
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
