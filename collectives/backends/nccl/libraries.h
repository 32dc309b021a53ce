// SPDX-License-Identifier: Apache-2.0
// The CUDA driver and NCCL, found at run time: a host without a GPU has neither, and a process has
// at most one of each. The CUDA runtime library is not needed.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <string>

#include "collectives/backend.h"

namespace hora::collectives::nccl {

// The functions' names as the libraries export them.
// clang-format off
#define HORA_CUDA_FUNCTIONS(X)                                                              \
  X(cuInit) X(cuDriverGetVersion)                                                           \
  X(cuGetErrorName) X(cuGetErrorString) X(cuDeviceGetCount) X(cuDeviceGet)                  \
      X(cuDeviceGetPCIBusId)                                                                \
      X(cuDevicePrimaryCtxRetain) X(cuCtxPushCurrent_v2) X(cuCtxPopCurrent_v2)              \
          X(cuStreamCreateWithPriority) X(cuStreamDestroy_v2) X(cuStreamWaitEvent)          \
              X(cuStreamSynchronize) X(cuEventCreate) X(cuEventDestroy_v2) X(cuEventRecord) \
                  X(cuEventQuery) X(cuMemAlloc_v2) X(cuMemFree_v2)       \
                      X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction)          \
                          X(cuLaunchKernel) X(cuLaunchHostFunc) X(cuMemAllocHost_v2)        \
                              X(cuMemFreeHost) X(cuMemcpyDtoDAsync_v2)                      \
                                  X(cuMemcpyDtoHAsync_v2) X(cuMemcpyHtoDAsync_v2)           \
                                      X(cuMemcpy2DAsync_v2)
#define HORA_NCCL_FUNCTIONS(X)                                                             \
  X(ncclGetUniqueId) X(ncclCommInitRank) X(ncclCommDestroy) X(ncclCommAbort)               \
      X(ncclCommGetAsyncError) X(ncclGetErrorString) X(ncclAllReduce) X(ncclAllGather)     \
          X(ncclBroadcast) X(ncclReduce) X(ncclReduceScatter) X(ncclSend) X(ncclRecv)      \
              X(ncclGroupStart) X(ncclGroupEnd)
// Later than 2.8: 2.11 (the operators), 2.13, 2.14. Null where NCCL is older.
#define HORA_NCCL_NEWER_FUNCTIONS(X) \
  X(ncclRedOpCreatePreMulSum) X(ncclRedOpDestroy) X(ncclGetLastError) X(ncclCommInitRankConfig)
// clang-format on

// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration.
#define HORA_MEMBER(name) decltype(&::name) name = nullptr;
struct Cuda {
  HORA_CUDA_FUNCTIONS(HORA_MEMBER)
};
struct Nccl {
  HORA_NCCL_FUNCTIONS(HORA_MEMBER)
  HORA_NCCL_NEWER_FUNCTIONS(HORA_MEMBER)
  int version = 0;  // 20804 is 2.8.4, whatever its own code
  bool knows_bfloat16() const { return version >= 21000; }
  bool scales() const { return ncclRedOpCreatePreMulSum != nullptr && ncclRedOpDestroy != nullptr; }
};
#undef HORA_MEMBER

// Loads and initialises the driver once per process; null, with the reason, where that fails. Any
// thread.
const Cuda* cuda(ErrorText& why_not);
// The NCCL that the process has already loaded (its framework's), otherwise the one that
// HORA_NCCL_LIBRARY names, otherwise the host's.
const Nccl* nccl(ErrorText& why_not);
// "2.28.9"; "" without NCCL.
const char* nccl_version();
std::string version_text(int version);

bool check(const Cuda& cuda, CUresult result, const char* call, ErrorText& error);
bool check(const Nccl& nccl, ncclResult_t result, const char* call, ncclComm_t communicator,
           ErrorText& error);

// The result of several calls; ncclInProgress is not a failure, since the communicators do not
// block.
inline ncclResult_t first_failure(ncclResult_t before, ncclResult_t now) {
  return before == ncclSuccess || before == ncclInProgress ? now : before;
}

}  // namespace hora::collectives::nccl
