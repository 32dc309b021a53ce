// SPDX-License-Identifier: Apache-2.0
// NCCL has no call that scales, but a reduction that multiplies its inputs first, and a reduction
// over one rank does nothing else. It runs on a communicator of this rank alone: the other ranks
// may scale in another way, so the reduction among all of them must be the same everywhere.
#include "collectives/backends/nccl/plain_packing.h"

#include "collectives/backends/nccl/datatypes.h"

namespace hora::collectives::nccl {

PlainPacking::PlainPacking(const Cuda& cuda, const Nccl& nccl, const Gpu& gpu,
                           const std::atomic<bool>& aborted, std::chrono::milliseconds timeout)
    : cuda_(cuda), nccl_(nccl), gpu_(gpu), aborted_(aborted), timeout_(timeout) {
  for (int i = 0; i < gpu.streams(); ++i) {
    lanes_.push_back(std::unique_ptr<Lane>(new Lane{{cuda, gpu.stream(i)}, nullptr}));
  }
}

bool PlainPacking::copy(int lane, hora_dtype dtype, const std::vector<Copy>& copies, double factor,
                        std::int64_t divisor, ErrorText& error) {
  if (factor == 1.0 && divisor == 1) return move(gpu_.stream(lane), dtype, copies, error);
  const std::optional<Scalar> exact = exact_scalar(dtype, factor);
  if (exact && divisor == 1 && nccl_.scales()) return multiply(lane, dtype, copies, *exact, error);
  for (const Copy& each : copies) {
    HostScaling& host = lanes_[static_cast<std::size_t>(lane)]->host;
    if (!host.scale(dtype, each, factor, divisor, error)) return false;
  }
  return true;
}

bool PlainPacking::move(CUstream stream, hora_dtype dtype, const std::vector<Copy>& copies,
                        ErrorText& error) {
  for (const Copy& each : copies) {
    const std::size_t bytes = static_cast<std::size_t>(each.count) * dtype_bytes(dtype);
    if (bytes == 0 || each.from == each.to) continue;
    const auto from = reinterpret_cast<CUdeviceptr>(each.from);
    const auto to = reinterpret_cast<CUdeviceptr>(each.to);
    if (!check(cuda_, cuda_.cuMemcpyDtoDAsync_v2(to, from, bytes, stream), "cuMemcpyDtoDAsync",
               error)) {
      return false;
    }
  }
  return true;
}

bool PlainPacking::multiply(int lane, hora_dtype dtype, const std::vector<Copy>& copies,
                            const Scalar& factor, ErrorText& error) {
  std::unique_ptr<NcclCommunicator>& alone = lanes_[static_cast<std::size_t>(lane)]->alone;
  if (alone == nullptr) {
    ncclUniqueId id;
    if (!check(nccl_, nccl_.ncclGetUniqueId(&id), "ncclGetUniqueId", nullptr, error)) return false;
    alone = NcclCommunicator::join(nccl_, gpu_, id, 0, 1, aborted_, timeout_, error);
    if (alone == nullptr) return false;
  }
  const auto calls = [&](ncclComm_t communicator) {
    ncclRedOp_t product = ncclSum;
    Scalar scalar = factor;
    ncclResult_t result = nccl_.ncclRedOpCreatePreMulSum(
        &product, scalar.bytes.data(), type_of(dtype), ncclScalarHostImmediate, communicator);
    if (result != ncclSuccess) return result;
    for (const Copy& each : copies) {
      if (each.count == 0) continue;
      result = first_failure(
          result, nccl_.ncclAllReduce(each.from, each.to, static_cast<std::size_t>(each.count),
                                      type_of(dtype), product, communicator, gpu_.stream(lane)));
    }
    // NCCL has read the operator when the calls have returned.
    return first_failure(result, nccl_.ncclRedOpDestroy(product, communicator));
  };
  return alone->group("ncclAllReduce (scaling)", calls, error);
}

}  // namespace hora::collectives::nccl
