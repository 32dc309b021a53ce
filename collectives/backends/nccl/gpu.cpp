// SPDX-License-Identifier: Apache-2.0
#include "collectives/backends/nccl/gpu.h"

#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "collectives/backend.h"
#include "collectives/backends/nccl/host_copies.h"
#include "collectives/backends/nccl/host_memory.h"
#include "collectives/backends/nccl/on_device.h"
#include "rendezvous/contract/nccl_banner.h"

namespace hora::collectives::nccl {

namespace {

struct Question {
  std::uintptr_t function;
  int answer = 0;
};

// Of the file's bytes alone: the memory after them is zero.
std::string_view constants_of(const dl_phdr_info& library, const ElfW(Phdr) & segment) {
  const bool is_constant = (segment.p_flags & PF_R) != 0 && (segment.p_flags & PF_W) == 0;
  if (segment.p_type != PT_LOAD || !is_constant) return {};
  return {reinterpret_cast<const char*>(library.dlpi_addr + segment.p_vaddr),
          std::min<std::size_t>(segment.p_filesz, kNcclBannerWithin)};
}

// Called for one library after the other, until it returns something else than 0.
int look(dl_phdr_info* library, std::size_t, void* data) {
  auto& question = *static_cast<Question*>(data);
  const auto* const begin = library->dlpi_phdr;
  const auto* const end = begin + library->dlpi_phnum;
  // The library that has the function, whatever its file is called: frameworks bring NCCL under
  // names of their own.
  const bool has_it = std::any_of(begin, end, [&](const ElfW(Phdr) & segment) {
    const std::uintptr_t start = library->dlpi_addr + segment.p_vaddr;
    return segment.p_type == PT_LOAD && question.function >= start &&
           question.function - start < segment.p_memsz;
  });
  if (!has_it) return 0;
  for (const auto* segment = begin; segment != end && question.answer == 0; ++segment) {
    question.answer = cuda_of_nccl(constants_of(*library, *segment));
  }
  return 1;
}

}  // namespace

int built_for(const void* function) {
  Question question{reinterpret_cast<std::uintptr_t>(function)};
  dl_iterate_phdr(look, &question);
  return question.answer;
}

// A lane is a stream with a fusion buffer of its own, so operations on different lanes never share
// memory. The driver API works without the CUDA runtime, whose version would have to match the
// framework's.

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

// The runtime allocates results before it knows which backend object will fill them, so these are
// plain functions over the primary context. Two atomics remember which device this rank uses.

namespace {

constexpr std::int32_t kNone = -1;
// Written by the runtime's thread, read by any thread that allocates.
std::atomic<std::int32_t> last_device{kNone};
std::atomic<std::int32_t> place_on_host{0};

// By way of page-locked memory, as to_device() wants it.
bool fill(std::int32_t device, void* memory, std::size_t bytes, const void* content) noexcept {
  ErrorText why_not;
  void* const locked = allocate_on_host(device, bytes, why_not);
  if (locked == nullptr) return false;
  std::memcpy(locked, content, bytes);
  const HostCopy copy{memory, locked, bytes, nullptr};
  const bool good = to_device(device, &copy, 1, why_not);
  release_on_host(device, locked);
  return good;
}

}  // namespace

void use_device(std::int32_t device) noexcept { last_device = device; }

void expect_place(std::int32_t local_rank) noexcept { place_on_host = local_rank; }

std::int32_t own_device() noexcept {
  if (const std::int32_t used = last_device; used != kNone) return used;
  // Round robin over the devices of the host when no tensor has shown the device yet.
  ErrorText why_not;
  const Cuda* const driver = cuda(why_not);
  int count = 0;
  if (driver == nullptr || driver->cuDeviceGetCount(&count) != CUDA_SUCCESS || count < 1) return 0;
  return place_on_host % count;
}

void* allocate(std::int32_t device, std::size_t bytes, const void* content) noexcept {
  ErrorText why_not;
  // The context of the thread's own framework stays current outside of this scope.
  const OnDevice here(device, why_not);
  CUdeviceptr place = 0;
  if (!here.good() || here.driver().cuMemAlloc_v2(&place, bytes) != CUDA_SUCCESS) return nullptr;
  auto* const memory = reinterpret_cast<void*>(place);
  if (content != nullptr && !fill(here.device(), memory, bytes, content)) {
    here.driver().cuMemFree_v2(place);
    return nullptr;
  }
  return memory;
}

void release(std::int32_t device, void* memory) noexcept {
  if (memory == nullptr) return;
  ErrorText why_not;
  const OnDevice here(device, why_not);
  if (here.good()) here.driver().cuMemFree_v2(reinterpret_cast<CUdeviceptr>(memory));
}

std::vector<int> ranks_that_share(std::span<const std::int32_t> hosts,
                                  std::span<const std::vector<std::string>> gpus) {
  std::map<std::pair<std::int32_t, std::vector<std::string>>, std::vector<int>> by_gpus;
  for (std::size_t place = 0; place < hosts.size(); ++place) {
    if (gpus[place].empty()) continue;
    // CUDA_VISIBLE_DEVICES orders them as it likes.
    std::vector<std::string> sorted = gpus[place];
    std::sort(sorted.begin(), sorted.end());
    auto& ranks = by_gpus[{hosts[place], sorted}];
    ranks.push_back(static_cast<int>(place));
    if (ranks.size() > sorted.size()) return ranks;
  }
  return {};
}

}  // namespace hora::collectives::nccl
