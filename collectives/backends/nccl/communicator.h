// SPDX-License-Identifier: Apache-2.0
// A communicator of NCCL, and the exchange of its id between the ranks.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/backend.h"
#include "collectives/backends/nccl/gpu.h"
#include "collectives/backends/nccl/libraries.h"
#include "rendezvous/base/time.h"

namespace hora::collectives::nccl {

// The data that the ranks of a process set exchange before they create NCCL's communicators.

// Collective: the first rank decides on the number of streams and makes an id for each. False, with
// the reason: it could make none, the ranks have different versions of NCCL, or some have to share
// a GPU.
bool exchange_ids(const GroupContext& group, const Cuda& driver, const Nccl& library,
                  std::vector<ncclUniqueId>& ids, ErrorText& error);

// An NCCL communicator that never blocks its caller for good: it follows every call until NCCL has
// accepted it, and it can give up a peer that does not come. One thread at a time; any thread may
// set `aborted`.

class NcclCommunicator {
 public:
  // Collective over the ranks that use the same id, on that GPU, which is current. `nccl` and
  // `aborted` must outlive the result. Null: `error` says why.
  static std::unique_ptr<NcclCommunicator> join(const Nccl& nccl, const Gpu& gpu,
                                                const ncclUniqueId& id, int rank, int size,
                                                const std::atomic<bool>& aborted,
                                                std::chrono::milliseconds timeout,
                                                ErrorText& error);
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Runs `calls` as one group: NCCL starts nothing before it has received all of them.
  using Calls = std::function<ncclResult_t(ncclComm_t)>;
  bool group(const char* what, const Calls& calls, ErrorText& error);
  // False when a peer or the network has failed since.
  bool is_healthy(ErrorText& error);
  // Stops what runs on this rank; the communicator is unusable afterwards.
  void break_off();

 private:
  NcclCommunicator(const Nccl& nccl, const std::atomic<bool>& aborted)
      : nccl_(nccl), aborted_(aborted) {}
  bool join_at_once(const ncclUniqueId& id, int rank, int size, Clock::time_point deadline,
                    ErrorText& error);
  bool join_in_a_thread(const Gpu& gpu, const ncclUniqueId& id, int rank, int size,
                        Clock::time_point deadline, ErrorText& error);
  bool settle(const char* what, Clock::time_point deadline, ErrorText& error);

  const Nccl& nccl_;
  const std::atomic<bool>& aborted_;
  ncclComm_t communicator_ = nullptr;
};

}  // namespace hora::collectives::nccl
