// SPDX-License-Identifier: Apache-2.0
// A lane is a stream with a fusion buffer of its own, so operations on different lanes never share
// memory. The driver API works without the CUDA runtime, whose version would have to match the
// framework's.
#include "collectives/backends/nccl/gpu.h"

namespace hora::collectives::nccl {

// A push and a pop leave the thread's current context as it was.
Gpu::Current::Current(const Cuda& cuda, CUcontext context) : cuda_(cuda) {
  cuda_.cuCtxPushCurrent_v2(context);
}

Gpu::Current::~Current() {
  CUcontext before = nullptr;
  cuda_.cuCtxPopCurrent_v2(&before);
}

std::unique_ptr<Gpu> Gpu::open(const Cuda& cuda, int device, int streams, ErrorText& error) {
  std::unique_ptr<Gpu> gpu(new Gpu(cuda, device));
  CUdevice handle = 0;
  if (!check(cuda, cuda.cuDeviceGet(&handle, device), "cuDeviceGet", error) ||
      !check(cuda, cuda.cuDevicePrimaryCtxRetain(&gpu->context_, handle),
             "cuDevicePrimaryCtxRetain", error)) {
    return nullptr;
  }
  const Current current(*gpu);
  return gpu->prepare(streams, error) ? std::move(gpu) : nullptr;
}

bool Gpu::prepare(int streams, ErrorText& error) {
  for (int i = 0; i < streams; ++i) {
    lanes_.emplace_back();
    // Non-blocking: independent of the framework's default stream. Priority -1: ahead of its other
    // work where the GPU supports that.
    if (!check(cuda_,
               cuda_.cuStreamCreateWithPriority(&lanes_.back().stream, CU_STREAM_NON_BLOCKING, -1),
               "cuStreamCreateWithPriority", error)) {
      return false;
    }
  }
  return true;
}

Gpu::~Gpu() {
  // open() may have failed before there was a context.
  if (context_ == nullptr) return;
  const Current current(*this);
  for (CUevent event : free_events_) cuda_.cuEventDestroy_v2(event);
  for (const Lane& lane : lanes_) {
    if (lane.buffer != 0) cuda_.cuMemFree_v2(lane.buffer);
    if (lane.stream != nullptr) cuda_.cuStreamDestroy_v2(lane.stream);
  }
  // The primary context stays retained, as the process's framework expects; it ends with the
  // process.
}

// Events are recycled: creating one is slow next to an operation. Without timing they are cheaper.
CUevent Gpu::take_event(ErrorText& error) {
  CUevent event = nullptr;
  if (!free_events_.empty()) {
    event = free_events_.back();
    free_events_.pop_back();
  } else if (!check(cuda_, cuda_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate",
                    error)) {
    return nullptr;
  }
  return event;
}

bool Gpu::wait_for(int which, CUstream producer, ErrorText& error) {
  CUevent event = take_event(error);
  if (event == nullptr) return false;
  const bool good =
      check(cuda_, cuda_.cuEventRecord(event, producer), "cuEventRecord", error) &&
      check(cuda_, cuda_.cuStreamWaitEvent(stream(which), event, 0), "cuStreamWaitEvent", error);
  recycle(event);  // recording it again later does not affect this wait
  return good;
}

void* Gpu::buffer(int which, std::size_t bytes, ErrorText& error) {
  Lane& lane = lanes_[static_cast<std::size_t>(which)];
  // The buffer only grows: fused steps soon reach the fusion threshold and stay there.
  if (lane.capacity < bytes) {
    if (lane.buffer != 0) {
      // Work under way may still use the old buffer.
      if (!check(cuda_, cuda_.cuStreamSynchronize(lane.stream), "cuStreamSynchronize", error)) {
        return nullptr;
      }
      cuda_.cuMemFree_v2(lane.buffer);
    }
    lane.buffer = 0;
    lane.capacity = 0;
    if (!check(cuda_, cuda_.cuMemAlloc_v2(&lane.buffer, bytes), "cuMemAlloc (fusion buffer)",
               error)) {
      return nullptr;
    }
    lane.capacity = bytes;
  }
  return reinterpret_cast<void*>(lane.buffer);
}

CUevent Gpu::mark(int which, ErrorText& error) {
  CUevent event = take_event(error);
  if (event == nullptr) return nullptr;
  if (check(cuda_, cuda_.cuEventRecord(event, stream(which)), "cuEventRecord", error)) return event;
  recycle(event);
  return nullptr;
}

Progress Gpu::look_at(CUevent event, ErrorText& error) {
  // Never a blocking wait: the caller's thread also drives the negotiation.
  const CUresult result = cuda_.cuEventQuery(event);
  if (result == CUDA_ERROR_NOT_READY) return Progress::kPending;
  return check(cuda_, result, "waiting for the GPU", error) ? Progress::kDone : Progress::kFailed;
}

}  // namespace hora::collectives::nccl
