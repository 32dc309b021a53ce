// A communicator of NCCL that never blocks its caller for good: every call is followed until it has
// been taken, and a peer that does not come can be given up. One thread at a time; abort() from
// any.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>

#include "collectives/backends/nccl/libraries.h"

namespace hora::collectives::nccl {

class NcclCommunicator {
 public:
  // Collective over the ranks that use the same id. The calling thread's device is used.
  static std::unique_ptr<NcclCommunicator> join(const Nccl& nccl, const ncclUniqueId& id, int rank,
                                                int size, const std::atomic<bool>& aborted,
                                                std::chrono::milliseconds patience,
                                                ErrorText& error);
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Runs `calls` as one group: nothing starts before all have been given.
  using Calls = std::function<ncclResult_t(ncclComm_t)>;
  bool group(const char* what, const Calls& calls, ErrorText& error);
  // Whether a peer or the network has failed since.
  bool is_healthy(ErrorText& error);
  // Stops what runs, here; the communicator is of no use after it.
  void break_off();

 private:
  NcclCommunicator(const Nccl& nccl, const std::atomic<bool>& aborted)
      : nccl_(nccl), aborted_(aborted) {}
  bool settle(const char* what, std::chrono::steady_clock::time_point deadline, ErrorText& error);

  const Nccl& nccl_;
  const std::atomic<bool>& aborted_;
  ncclComm_t communicator_ = nullptr;
};

}  // namespace hora::collectives::nccl
