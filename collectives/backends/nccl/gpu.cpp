// SPDX-License-Identifier: Apache-2.0
// A lane is a stream with a fusion buffer of its own, so operations on different lanes never share
// memory. The driver API works without the CUDA runtime, whose version would have to match the
// framework's.
#include "collectives/backends/nccl/gpu.h"

#include <algorithm>
#include <string>

#include "collectives/backends/nccl/pack_kernels.h"
#include "collectives/types.h"

// The kernels as nvcc compiled them (a fat binary for several GPU generations). The assembler
// embeds them, so that the module has no file to find at run time.
__asm__(
    ".section .rodata\n"
    ".balign 64\n"
    "hora_pack_kernels_image:\n"
    ".incbin \"" HORA_PACK_KERNELS
    "\"\n"
    ".byte 0\n"
    ".previous\n");
extern "C" const char hora_pack_kernels_image[] __attribute__((visibility("hidden")));

namespace hora::collectives::nccl {

namespace {

// Indexed by hora_dtype; a bool is a byte.
constexpr const char* kSuffixes[kDtypeCount] = {"u8",  "i8",  "u16", "i16", "i32", "i64",
                                                "f16", "f32", "f64", "u8",  "bf16"};
constexpr unsigned kMostBlocks = 64;  // per copy; the kernel's loop does the rest

}  // namespace

// A push and a pop leave the thread's current context as it was.
Gpu::Current::Current(const Gpu& gpu) : cuda_(gpu.cuda_) {
  cuda_.cuCtxPushCurrent_v2(gpu.context_);
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
  // The driver picks the code for this GPU from the image, or compiles the embedded PTX for a newer
  // one.
  if (!check(cuda_, cuda_.cuModuleLoadData(&module_, hora_pack_kernels_image), "cuModuleLoadData",
             error)) {
    return false;
  }
  for (const char* suffix : kSuffixes) {
    const std::string name = std::string(kCopyKernel) + suffix;
    kernels_.emplace_back();
    if (!check(cuda_, cuda_.cuModuleGetFunction(&kernels_.back(), module_, name.c_str()),
               "cuModuleGetFunction", error)) {
      return false;
    }
  }
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

// One launch copies up to kMostCopies tensors: block row y does copy y.
bool Gpu::copy(int which, hora_dtype dtype, const std::vector<Copy>& copies, double factor,
               std::int64_t divisor, ErrorText& error) {
  for (std::size_t first = 0; first < copies.size(); first += kMostCopies) {
    const std::size_t count = std::min<std::size_t>(kMostCopies, copies.size() - first);
    CopyTable table = {};
    std::int64_t longest = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const Copy& each = copies[first + i];
      table.from[i] = each.from;
      table.to[i] = each.to;
      table.count[i] = each.count;
      longest = std::max(longest, each.count);
    }
    // A launch without blocks is an error.
    if (longest == 0) continue;
    void* arguments[] = {&table, &factor, &divisor};
    // All copies of a launch get as many blocks as the longest one needs.
    const std::int64_t wanted = (longest + kThreadsPerBlock - 1) / kThreadsPerBlock;
    const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(wanted, kMostBlocks));
    if (!check(cuda_,
               cuda_.cuLaunchKernel(kernels_[dtype], blocks, static_cast<unsigned>(count), 1,
                                    kThreadsPerBlock, 1, 1, 0, stream(which), arguments, nullptr),
               "cuLaunchKernel", error)) {
      return false;
    }
  }
  return true;
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
